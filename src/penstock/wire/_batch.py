"""The header of a record batch, as every append and every walk over a log reads it; `batch.py` says what it is.

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_batch.pxd`; indexes are
then not checked by the language, so everything here looks at the bytes that remain before it reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from penstock.base.crc import crc32c
from penstock.base.errors import ApiError, Error
from penstock.base.world import Buffer

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base offset and length: what lies before the bytes that the length counts
ATTRIBUTES_OFFSET = 21  # also where the CRC begins to count
MAGIC = 2
COMPRESSION_MASK = 0x07
COMPRESSION_MAX = 4  # zstd: the last codec that there is
TRANSACTIONAL = 0x10
CONTROL = 0x20
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

_STAMP = Struct(">qii")  # base offset, length, leader epoch
_FIELDS = (
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
# The same numbers where C works with them.
_HEADER_SIZE = HEADER_SIZE
_LOG_OVERHEAD = LOG_OVERHEAD
_MAGIC = MAGIC
_COMPRESSION_MASK = COMPRESSION_MASK
_COMPRESSION_MAX = COMPRESSION_MAX
_COMPILED = __file__.endswith((".so", ".pyd"))


class BatchHeader:
    """The fields of one header, in their order."""

    __slots__ = _FIELDS

    def __init__(
        self,
        base_offset: int,
        length: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.length = length
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    def __iter__(self) -> Iterator[int]:
        return iter([getattr(self, name) for name in _FIELDS])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BatchHeader):
            return NotImplemented
        return list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"BatchHeader({', '.join(f'{name}={getattr(self, name)}' for name in _FIELDS)})"

    def as_dict(self) -> dict[str, int]:
        """The fields by their names."""
        return {name: getattr(self, name) for name in _FIELDS}

    def replace(self, **fields: int) -> BatchHeader:
        """The same header with some fields changed."""
        return BatchHeader(**{**self.as_dict(), **fields})

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


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position; the caller knows that 61 bytes are there."""
    if _COMPILED:
        return _read(buffer, position)
    return BatchHeader(*HEADER.unpack_from(buffer, position))


def _read(data: Buffer, position: int) -> BatchHeader:
    """The same number by number, which is how a C compiler wants it."""
    if position < 0 or len(data) - position < _HEADER_SIZE:
        raise ValueError("a header would go beyond the buffer")
    header = BatchHeader.__new__(BatchHeader)
    header.base_offset = _int64(data, position)
    header.length = _int32(data, position + 8)
    header.leader_epoch = _int32(data, position + 12)
    header.magic = _int8(data, position + 16)
    header.crc = _uint32(data, position + 17)
    header.attributes = _int16(data, position + 21)
    header.last_offset_delta = _int32(data, position + 23)
    header.base_timestamp = _int64(data, position + 27)
    header.max_timestamp = _int64(data, position + 35)
    header.producer_id = _int64(data, position + 43)
    header.producer_epoch = _int16(data, position + 51)
    header.base_sequence = _int32(data, position + 53)
    header.record_count = _int32(data, position + 57)
    return header


def _int8(data: Buffer, at: int) -> int:
    return (data[at] ^ 0x80) - 0x80


def _uint16(data: Buffer, at: int) -> int:
    return (data[at] << 8) | data[at + 1]


def _int16(data: Buffer, at: int) -> int:
    return (_uint16(data, at) ^ 0x8000) - 0x8000


def _uint32(data: Buffer, at: int) -> int:
    high = _uint16(data, at)
    return high * 0x10000 + _uint16(data, at + 2)


def _int32(data: Buffer, at: int) -> int:
    high = _int16(data, at)
    return high * 0x10000 + _uint16(data, at + 2)


def _int64(data: Buffer, at: int) -> int:
    high = _int32(data, at)
    return high * 0x10000 * 0x10000 + _uint32(data, at + 4)  # no number here is too large for a C compiler


def check_produced_batch(records: memoryview) -> BatchHeader:
    """The header of what a producer sent for one partition: exactly one sound batch. ApiError says what is wrong."""
    available = len(records)
    if available < _HEADER_SIZE:
        raise ApiError(Error.INVALID_RECORD, f"a record batch has at least {HEADER_SIZE} bytes, got {len(records)}")
    header = read_header(records)
    if header.magic != _MAGIC:
        if header.magic in (0, 1):
            raise ApiError(Error.INVALID_RECORD, f"message format {header.magic} is not taken, only {MAGIC}")
        raise ApiError(Error.CORRUPT_MESSAGE, f"unknown message format {header.magic}")
    size_bytes = header.length + _LOG_OVERHEAD
    if size_bytes != available:
        if size_bytes < _HEADER_SIZE:
            raise ApiError(Error.CORRUPT_MESSAGE, f"the batch says {size_bytes} bytes, there are {len(records)}")
        if size_bytes > available:
            raise ApiError(Error.INVALID_RECORD, f"the batch says {size_bytes} bytes, there are {len(records)}")
        raise ApiError(Error.INVALID_RECORD, "a produce request carries exactly one batch for each partition")
    crc = crc32c(records[21:])
    if crc != header.crc:
        raise ApiError(Error.CORRUPT_MESSAGE, "the checksum of the batch does not match")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise ApiError(
            Error.INVALID_RECORD,
            f"{header.record_count} records and a last offset delta of {header.last_offset_delta} do not agree",
        )
    if header.attributes & _COMPRESSION_MASK > _COMPRESSION_MAX:
        raise ApiError(Error.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression {header.compression}")
    return header


def stamp(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Fill in, in place, what the leader decides; the checksum does not cover it."""
    _STAMP.pack_into(batch, 0, base_offset, len(batch) - _LOG_OVERHEAD, leader_epoch)
