"""Transaction markers: control batches with one record that ends a transaction.

The record's key is (version, type: 0 abort, 1 commit), its value (version, epoch of the transaction coordinator).
Control batches are never compressed.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from penstock.wire.batch import (
    ATTRIBUTES_OFFSET,
    CONTROL,
    CRC_OFFSET,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
)

ABORT = 0
COMMIT = 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_CRC = Struct(">I")


class Marker(NamedTuple):
    """How a transaction ended, and which coordinator said so."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(producer_id: int, producer_epoch: int, marker: Marker, timestamp_ms: int) -> bytearray:
    """A whole control batch; the log fills in offset and leader epoch."""
    key = _KEY.pack(0, COMMIT if marker.is_commit else ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    # attributes, timestamp delta 0, offset delta 0, zigzag lengths, no headers: every number fits one byte
    body = bytes([0, 0, 0, len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\0"
    record = bytes([len(body) * 2]) + body
    length = HEADER_SIZE - LOG_OVERHEAD + len(record)
    batch = bytearray(HEADER_SIZE) + record
    fields = (0, length, 0, MAGIC, 0, TRANSACTIONAL | CONTROL, 0, timestamp_ms, timestamp_ms)
    HEADER.pack_into(batch, 0, *fields, producer_id, producer_epoch, NO_SEQUENCE, 1)
    _CRC.pack_into(batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return batch


def decode_marker(batch: memoryview) -> Marker | None:
    """The marker in a control batch; None for an empty one or another kind of control record."""
    if len(batch) == HEADER_SIZE:
        return None
    try:
        position = HEADER_SIZE
        _length, position = _varint(batch, position)
        position += 1  # attributes
        _timestamp, position = _varint(batch, position)
        _offset, position = _varint(batch, position)
        key_size, position = _varint(batch, position)
        _version, kind = _KEY.unpack_from(batch, position)
        position += key_size
        _value_size, position = _varint(batch, position)
        _version, coordinator_epoch = _VALUE.unpack_from(batch, position)
    except (IndexError, ValueError, StructError) as error:
        raise ValueError("a control batch without a readable record") from error
    return Marker(kind == COMMIT, coordinator_epoch) if kind in (ABORT, COMMIT) else None


def _varint(buffer: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise ValueError("a varint that does not end")
