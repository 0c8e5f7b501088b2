"""The header of a record batch (format version 2), which is all that the broker looks at.

    base offset 8 | length 4 | partition leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4 |
    base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4 | records…

The CRC (Castagnoli) covers everything from the attributes to the end; base offset and leader epoch lie before it, so
the broker fills them in without touching the rest. A batch whose inside lies harms only its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import NamedTuple, cast

from crc32c import crc32c

from penstock.base.errors import ApiError, Error
from penstock.base.world import Buffer

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 61

LENGTH_OFFSET = 8  # the length field counts the bytes after itself
LOG_OVERHEAD = 12  # base offset and length: what lies before the bytes that the length counts
LEADER_EPOCH_OFFSET = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21  # also where the CRC begins to count
MAX_TIMESTAMP_OFFSET = 35

MAGIC = 2
COMPRESSION_MASK = 0x07
COMPRESSION_MAX = 4  # zstd: the last codec that there is
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_STAMP = Struct(">qii")  # base offset, length, leader epoch
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")


class BatchHeader(NamedTuple):
    """The fields of one header, in their order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap at 2^31."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_producer(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


_header = cast("Callable[[tuple[int, ...]], BatchHeader]", partial(tuple.__new__, BatchHeader))  # `_make` is far slower


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position; the caller knows that 61 bytes are there."""
    return _header(HEADER.unpack_from(buffer, position))


def problem_of_batch(batch: memoryview, header: BatchHeader) -> str | None:
    """What is wrong with one whole batch (its bytes and nothing after them), or None."""
    if header.magic != MAGIC:
        return f"magic is {header.magic}, not {MAGIC}"
    if header.length + LOG_OVERHEAD != len(batch):
        return f"the batch says it has {header.length + LOG_OVERHEAD} bytes, there are {len(batch)}"
    if header.record_count < 0 or header.last_offset_delta < 0:
        return f"negative count: {header.record_count} records, last offset delta {header.last_offset_delta}"
    if crc32c(batch[ATTRIBUTES_OFFSET:]) != header.crc:
        return "the checksum does not match"
    return None


def check_produced_batch(records: memoryview) -> BatchHeader:
    """The header of what a producer sent for one partition: exactly one sound batch. ApiError says what is wrong."""
    if len(records) < HEADER_SIZE:
        raise ApiError(Error.INVALID_RECORD, f"a record batch has at least {HEADER_SIZE} bytes, got {len(records)}")
    header = _header(HEADER.unpack_from(records))
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise ApiError(Error.INVALID_RECORD, f"message format {header.magic} is not taken, only {MAGIC}")
        raise ApiError(Error.CORRUPT_MESSAGE, f"unknown message format {header.magic}")
    size_bytes = header.length + LOG_OVERHEAD
    if size_bytes != len(records):
        if size_bytes < HEADER_SIZE:
            raise ApiError(Error.CORRUPT_MESSAGE, f"the batch says {size_bytes} bytes, there are {len(records)}")
        if size_bytes > len(records):
            raise ApiError(Error.INVALID_RECORD, f"the batch says {size_bytes} bytes, there are {len(records)}")
        raise ApiError(Error.INVALID_RECORD, "a produce request carries exactly one batch for each partition")
    if crc32c(records[ATTRIBUTES_OFFSET:]) != header.crc:
        raise ApiError(Error.CORRUPT_MESSAGE, "the checksum of the batch does not match")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise ApiError(
            Error.INVALID_RECORD,
            f"{header.record_count} records and a last offset delta of {header.last_offset_delta} do not agree",
        )
    if header.attributes & COMPRESSION_MASK > COMPRESSION_MAX:
        raise ApiError(Error.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression {header.compression}")
    return header


def stamp(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Fill in, in place, what the leader decides; the checksum does not cover it."""
    _STAMP.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD, leader_epoch)


def stamp_append_time(batch: memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Mark the batch as having been given its time by the log (LogAppendTime), in place."""
    attributes = header.attributes | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_OFFSET, attributes)
    _TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_OFFSET, now_ms)
    crc = crc32c(batch[ATTRIBUTES_OFFSET:])
    _CRC.pack_into(batch, CRC_OFFSET, crc)
    return header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc)


def each_batch(buffer: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches of a buffer, in order; stops before an incomplete one or one with an impossible length."""
    position = 0
    while len(buffer) - position >= HEADER_SIZE:
        header = _header(HEADER.unpack_from(buffer, position))
        end = position + header.length + LOG_OVERHEAD
        if header.length + LOG_OVERHEAD < HEADER_SIZE or end > len(buffer):
            return
        yield header, buffer[position:end]
        position = end
