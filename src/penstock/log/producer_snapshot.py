"""Producer snapshots: the state of all producers at an offset, in Kafka's format (version 1).

    version 2 | crc (Castagnoli, of all that follows) 4 | count 4 | entries, each:
    producer id 8 | epoch 2 | last sequence 4 | last offset 8 | offset delta 4 | timestamp 8 | coordinator epoch 4 |
    first offset of the open transaction 8 (-1: none)

Kafka's entry holds one batch for each producer. Ours must remember five, so that a retry after a restart is still
known: the earlier ones follow in a section of our own, under the same checksum. Kafka's reader ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

from penstock.base.crc import crc32c
from penstock.log.producers import NO_OFFSET, NO_SEQUENCE, SEQUENCE_MASK, ProducedBatch, ProducerState

VERSION = 1
_HEAD = Struct(">hIi")
_CRC_AT = 2
_COUNT_AT = 6
_ENTRY = Struct(">qhiqiqiq")
_EARLIER_MAGIC = b"PNSK"
_EARLIER_COUNT = Struct(">B")
_EARLIER_BATCH = Struct(">iqiq")  # last sequence, last offset, offset delta, timestamp


class DamagedSnapshot(Exception):
    """A snapshot that cannot be trusted; the state is rebuilt from the log."""


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    """The content of a snapshot file."""
    entries = []
    earlier = []
    for state in states:
        last = state.batches[-1] if state.batches else None
        entries.append(
            _ENTRY.pack(
                state.producer_id,
                state.epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else NO_OFFSET,
                last.last_offset - last.first_offset if last else 0,
                state.last_timestamp,
                state.coordinator_epoch,
                state.transaction_first_offset,
            )
        )
        earlier.append(_encode_earlier(state.batches))
    tail = b"".join(earlier)
    content = bytearray(_HEAD.pack(VERSION, 0, len(entries)) + b"".join(entries))
    if any(tail):
        content += _EARLIER_MAGIC + tail
    content[_CRC_AT:_COUNT_AT] = crc32c(memoryview(content)[_COUNT_AT:]).to_bytes(4, "big")
    return bytes(content)


def _encode_earlier(batches: list[ProducedBatch]) -> bytes:
    parts = [_EARLIER_COUNT.pack(max(0, len(batches) - 1))]
    for batch in batches[:-1]:
        delta = batch.last_offset - batch.first_offset
        parts.append(_EARLIER_BATCH.pack(batch.last_sequence, batch.last_offset, delta, batch.timestamp))
    if batches:
        parts.append(batches[-1].timestamp.to_bytes(8, "big", signed=True))
    return b"".join(parts)


def decode_snapshot(content: bytes) -> list[ProducerState]:
    """The producers of a snapshot file; DamagedSnapshot if it is not whole."""
    if len(content) < _HEAD.size:
        raise DamagedSnapshot(f"{len(content)} bytes are less than a snapshot")
    version, crc, count = _HEAD.unpack_from(content)
    if version != VERSION:
        raise DamagedSnapshot(f"version {version}, not {VERSION}")
    if crc32c(memoryview(content)[_COUNT_AT:]) != crc:
        raise DamagedSnapshot("the checksum does not match")
    end = _HEAD.size + count * _ENTRY.size
    if count < 0 or end > len(content):
        raise DamagedSnapshot(f"{count} entries in {len(content)} bytes")
    states = [_decode_entry(fields) for fields in _ENTRY.iter_unpack(content[_HEAD.size : end])]
    if content[end : end + len(_EARLIER_MAGIC)] == _EARLIER_MAGIC:
        try:
            _decode_earlier(states, content, end + len(_EARLIER_MAGIC))
        except StructError as error:
            raise DamagedSnapshot("the list of earlier batches is not whole") from error
    return states


def _decode_entry(fields: tuple[int, ...]) -> ProducerState:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = fields
    state = ProducerState(producer_id, epoch)
    state.last_timestamp = timestamp
    state.coordinator_epoch = coordinator_epoch
    state.transaction_first_offset = first_offset
    if last_offset >= 0:
        state.batches.append(_batch(last_sequence, last_offset, delta, timestamp))
    return state


def _decode_earlier(states: list[ProducerState], content: bytes, position: int) -> None:
    for state in states:
        (count,) = _EARLIER_COUNT.unpack_from(content, position)
        position += _EARLIER_COUNT.size
        earlier = []
        for _ in range(count):
            earlier.append(_batch(*_EARLIER_BATCH.unpack_from(content, position)))
            position += _EARLIER_BATCH.size
        if state.batches:
            timestamp = int.from_bytes(content[position : position + 8], "big", signed=True)
            state.batches[-1].timestamp = timestamp
            position += 8
        state.batches[:0] = earlier


def _batch(last_sequence: int, last_offset: int, delta: int, timestamp: int) -> ProducedBatch:
    first_sequence = (last_sequence - delta) & SEQUENCE_MASK if last_sequence >= 0 else NO_SEQUENCE
    return ProducedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
