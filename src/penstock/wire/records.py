"""The records inside a batch: read them, write them, find one by its time.

The broker itself looks at headers only (`batch.py`); this is for those who need the inside. Reading goes from the batch
to its *area* (the records, decompressed), from there to *columns* (where each field lies, see `_records.py`), and from
there to `Record` objects for those who want objects. Writing goes the same way back.

A batch may hold anything a stranger put there. Sizes are checked before memory is taken, and everything that is wrong
is a `RecordError`. The checksum is not looked at here: that is `problem_of_batch`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from struct import error as StructError
from typing import NamedTuple, TypedDict, Unpack

from penstock.base.crc import crc32c
from penstock.base.world import Buffer
from penstock.wire._records import RECORD_OVERHEAD_MAX, RECORD_SIZE_MIN, RecordError, encode, is_compiled, scan
from penstock.wire.batch import (
    ATTRIBUTES_OFFSET,
    CONTROL,
    CRC_OFFSET,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from penstock.wire.compression import Compression, CompressionError, Inflater, compress, decompress

__all__ = [
    "BatchOptions",
    "Record",
    "RecordColumns",
    "RecordError",
    "TimedOffset",
    "build_batch",
    "encode_headers",
    "first_record_since",
    "is_compiled",
    "read_columns",
    "read_headers",
    "read_records",
    "record_area",
    "record_with_max_timestamp",
    "scan_area",
    "seal_batch",
]

AREA_SIZE_BYTES_MAX = 128 * 1024 * 1024  # what a batch may inflate to, unless the caller knows better

_INT32_MAX = 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_CRC_SIZE = ATTRIBUTES_OFFSET - CRC_OFFSET

Header = tuple[str, bytes | None]


@dataclass(slots=True)
class Record:
    """One record with its absolute offset and time (milliseconds since 1970)."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: list[Header] = field(default_factory=list)


class TimedOffset(NamedTuple):
    """Where a record is, and when it was."""

    offset: int
    timestamp: int


@dataclass(slots=True)
class RecordColumns:
    """Where the fields of each record lie in an area: one row per record, int64 timestamps and int32 for the rest."""

    timestamp_delta: array[int]
    offset_delta: array[int]
    key_start: array[int]
    key_length: array[int]
    value_start: array[int]
    value_length: array[int]
    headers_start: array[int]
    headers_end: array[int]

    @classmethod
    def allocate(cls, count: int) -> RecordColumns:
        return cls(array("q", bytes(8 * count)), *(array("i", bytes(4 * count)) for _ in range(7)))

    def scan(self, area: Buffer, count: int) -> None:
        """Fill the first rows; RecordError unless the area holds exactly so many records."""
        scan(
            area,
            count,
            self.timestamp_delta,
            self.offset_delta,
            self.key_start,
            self.key_length,
            self.value_start,
            self.value_length,
            self.headers_start,
            self.headers_end,
        )


class BatchOptions(TypedDict, total=False):
    """What a batch says about itself beside its records; what is left out has the value of a plain producer."""

    base_offset: int
    compression: Compression
    level: int | None
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    log_append_time: int | None


def record_area(
    batch: memoryview,
    header: BatchHeader,
    *,
    size_bytes_max: int = AREA_SIZE_BYTES_MAX,
    inflater: Inflater | None = None,
) -> Buffer:
    """The records of a batch, decompressed, one behind the other; by an inflater that has its own ceiling, if given."""
    if len(batch) < HEADER_SIZE or header.size_bytes != len(batch):
        raise RecordError(f"the batch says it has {header.size_bytes} bytes, there are {len(batch)}")
    if header.magic != MAGIC:
        raise RecordError(f"magic is {header.magic}, not {MAGIC}")
    if header.record_count < 0:
        raise RecordError(f"a negative number of records: {header.record_count}")
    if header.compression == Compression.NONE:
        return batch[HEADER_SIZE:]
    if header.record_count == 0:  # what compaction leaves of a batch has no compressed bytes either
        return b""
    try:
        codec = Compression(header.compression)
        if inflater is not None:
            return inflater.decompress(codec, batch[HEADER_SIZE:])
        return decompress(codec, batch[HEADER_SIZE:], size_bytes_max=size_bytes_max)
    except CompressionError as error:
        raise RecordError(str(error)) from None
    except ValueError:
        raise RecordError(f"unknown compression {header.compression}") from None


def scan_area(area: Buffer, count: int) -> RecordColumns:
    """Where the fields of exactly `count` records lie. A count that cannot be true takes no memory."""
    if not 0 <= count <= len(area) // RECORD_SIZE_MIN:
        raise RecordError(f"{len(area)} bytes cannot hold {count} records")
    columns = RecordColumns.allocate(count)
    columns.scan(area, count)
    return columns


def read_columns(
    batch: memoryview, *, size_bytes_max: int = AREA_SIZE_BYTES_MAX
) -> tuple[BatchHeader, Buffer, RecordColumns]:
    """The header of a batch, its area, and where the fields lie in it."""
    if len(batch) < HEADER_SIZE:
        raise RecordError(f"a record batch has at least {HEADER_SIZE} bytes, got {len(batch)}")
    header = read_header(batch)
    area = record_area(batch, header, size_bytes_max=size_bytes_max)
    columns = scan_area(area, header.record_count)
    if header.record_count and columns.offset_delta[-1] > header.last_offset_delta:
        raise RecordError(f"an offset delta of {columns.offset_delta[-1]} after the last, {header.last_offset_delta}")
    return header, area, columns


def read_records(batch: memoryview, *, size_bytes_max: int = AREA_SIZE_BYTES_MAX) -> list[Record]:
    """The records of one whole batch."""
    header, area, columns = read_columns(batch, size_bytes_max=size_bytes_max)
    data = bytes(area)
    rows = zip(
        columns.offset_delta,
        _timestamps(header, columns),
        columns.key_start,
        columns.key_length,
        columns.value_start,
        columns.value_length,
        columns.headers_start,
        columns.headers_end,
        strict=True,
    )
    return [
        Record(
            header.base_offset + delta,
            timestamp,
            None if key_length < 0 else data[key_start : key_start + key_length],
            None if value_length < 0 else data[value_start : value_start + value_length],
            read_headers(data, headers_start) if headers_end - headers_start > 1 else [],
        )
        for delta, timestamp, key_start, key_length, value_start, value_length, headers_start, headers_end in rows
    ]


def read_headers(area: Buffer, position: int) -> list[Header]:
    """The headers of one record, from where a scan has found them good."""
    headers: list[Header] = []
    count, position = _read_varint(area, position)
    for _ in range(count):
        length, position = _read_varint(area, position)
        name = str(area[position : position + length], "utf-8", "replace")  # as the Java client does
        length, position = _read_varint(area, position + length)
        if length < 0:
            headers.append((name, None))
        else:
            headers.append((name, bytes(area[position : position + length])))
            position += length
    return headers


def first_record_since(
    batch: memoryview, timestamp: int, *, size_bytes_max: int = AREA_SIZE_BYTES_MAX
) -> TimedOffset | None:
    """The first record of a batch that is not older than a time, if there is one."""
    header, _, columns = read_columns(batch, size_bytes_max=size_bytes_max)
    for offset_delta, record_timestamp in zip(columns.offset_delta, _timestamps(header, columns), strict=True):
        if record_timestamp >= timestamp:
            return TimedOffset(header.base_offset + offset_delta, record_timestamp)
    return None


def record_with_max_timestamp(batch: memoryview, *, size_bytes_max: int = AREA_SIZE_BYTES_MAX) -> TimedOffset | None:
    """The newest record by its time, the first if there are several; None in a batch without records."""
    header, _, columns = read_columns(batch, size_bytes_max=size_bytes_max)
    timestamps = _timestamps(header, columns)
    if not timestamps:
        return None
    newest = max(timestamps)
    return TimedOffset(header.base_offset + columns.offset_delta[timestamps.index(newest)], newest)


def build_batch(
    records: Sequence[Record], *, last_offset_delta: int | None = None, **options: Unpack[BatchOptions]
) -> bytes:
    """One batch of records whose offsets ascend from `base_offset` (0 unless given).

    `last_offset_delta` is that of the last record unless given: compaction keeps the range of a batch while records go.
    """
    base_offset = options.get("base_offset", 0)
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset if records else 0
    if not _ascends([base_offset - 1, *(record.offset for record in records), base_offset + last_offset_delta + 1]):
        raise RecordError("the offsets of the records do not ascend within the batch")
    return seal_batch(
        _encode_area(records, base_offset, base_timestamp),
        len(records),
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp for record in records), default=NO_TIMESTAMP),
        **options,
    )


def seal_batch(
    area: Buffer,
    count: int,
    *,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    **options: Unpack[BatchOptions],
) -> bytes:
    """An area of records as a batch: compressed, with a header before it and the checksum in it."""
    codec = options.get("compression", Compression.NONE)
    body = area if codec is Compression.NONE or count == 0 else compress(codec, area, options.get("level"))
    header = sealed_header(
        body,
        count,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        **options,
    )
    return header + body


def sealed_header(
    body: Buffer,
    count: int,
    *,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    **options: Unpack[BatchOptions],
) -> bytes:
    """The header of a batch, checksum included, for records that are compressed already: the body is only looked at."""
    append_time = options.get("log_append_time")
    try:
        header = HEADER.pack(
            options.get("base_offset", 0),
            HEADER_SIZE - LOG_OVERHEAD + len(body),
            options.get("leader_epoch", -1),
            MAGIC,
            0,
            options.get("compression", Compression.NONE)
            | (LOG_APPEND_TIME if append_time is not None else 0)
            | (TRANSACTIONAL if options.get("transactional") else 0)
            | (CONTROL if options.get("control") else 0),
            last_offset_delta,
            base_timestamp,
            max_timestamp if append_time is None else append_time,
            options.get("producer_id", NO_PRODUCER_ID),
            options.get("producer_epoch", -1),
            options.get("base_sequence", NO_SEQUENCE),
            count,
        )
    except StructError as error:
        raise RecordError(f"a field of the batch is out of range: {error}") from None
    crc = crc32c(body, crc32c(header[ATTRIBUTES_OFFSET:]))
    return b"".join((header[:CRC_OFFSET], crc.to_bytes(_CRC_SIZE, "big"), header[ATTRIBUTES_OFFSET:]))


def encode_headers(headers: Sequence[Header]) -> bytes:
    """The headers of one record, with their count before them; nothing at all if there are none."""
    if not headers:
        return b""
    parts = [_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (_varint(len(encoded)), encoded)
        parts += (_varint(-1),) if value is None else (_varint(len(value)), value)
    return b"".join(parts)


def _encode_area(records: Sequence[Record], base_offset: int, base_timestamp: int) -> memoryview:
    keys = [record.key for record in records]
    values = [record.value for record in records]
    headers = [encode_headers(record.headers) for record in records]
    all_keys, all_values, all_headers = (b"".join(filter(None, parts)) for parts in (keys, values, headers))
    size_max = len(all_keys) + len(all_values) + len(all_headers) + RECORD_OVERHEAD_MAX * len(records)
    if size_max > _INT32_MAX:
        raise RecordError(f"{size_max} bytes are too many for one batch")
    header_bounds = _bounds(headers)
    try:
        timestamp_deltas = array("q", [record.timestamp - base_timestamp for record in records])
        offset_deltas = array("i", [record.offset - base_offset for record in records])
    except OverflowError:
        raise RecordError("the records of a batch lie too far apart") from None
    out = bytearray(size_max)
    size_bytes = encode(
        out,
        len(records),
        timestamp_deltas,
        offset_deltas,
        all_keys,
        _bounds(keys),
        _lengths(keys),
        all_values,
        _bounds(values),
        _lengths(values),
        all_headers,
        header_bounds,
        header_bounds[1:],
    )
    return memoryview(out)[:size_bytes]


def _bounds(parts: Iterable[bytes | None]) -> array[int]:
    """Where each part begins, and where the last one ends, when they lie one behind the other."""
    return array("i", accumulate((len(part) if part else 0 for part in parts), initial=0))


def _lengths(parts: Iterable[bytes | None]) -> array[int]:
    return array("i", [-1 if part is None else len(part) for part in parts])


def _ascends(numbers: Sequence[int]) -> bool:
    return all(earlier < later for earlier, later in pairwise(numbers))


def _timestamps(header: BatchHeader, columns: RecordColumns) -> list[int]:
    """The time of each record: its own, or for all of them the one that the log gave the batch."""
    if header.attributes & LOG_APPEND_TIME:
        return [header.max_timestamp] * len(columns.timestamp_delta)
    timestamps = [header.base_timestamp + delta for delta in columns.timestamp_delta]
    if timestamps and (min(timestamps) < _INT64_MIN or max(timestamps) > _INT64_MAX):
        raise RecordError("a timestamp outside 64 bits")
    return timestamps


def _read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint that is known to be good, and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7


def _varint(number: int) -> bytes:
    """A number as a zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
