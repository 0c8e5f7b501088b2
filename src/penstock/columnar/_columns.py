"""The loops from records to Arrow's columns, without a Python object for any record.

First the batches of an answer are looked at: `wire/_records.py` finds where the fields of each record lie, and what a
batch's header says becomes the offset and the time of each row. Batches may be small, so one call goes through as many
as need no closer look. Then fields are copied one behind the other, as Arrow wants them: bytes, offsets into them, and
one bit for each row that is 0 where it is null.

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_columns.pxd`; indexes are
then not checked by the language, so every loop looks at what remains of its buffers before it reads or writes, and
every number stays within 64 bits.
"""

from __future__ import annotations

from penstock.base.crc import crc32c
from penstock.base.world import Buffer
from penstock.wire import _copying
from penstock.wire._batch import BatchHeader, read_header
from penstock.wire._records import Column, RecordError, scan
from penstock.wire.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)

TIMESTAMP_MS_MAX = 9_223_372_036_854_775  # what fits into 64 bits as microseconds
BASE_OFFSET_MAX = 2**63 - 2**32  # so that no offset within a batch leaves 64 bits

DONE = 0  # what `scan_batches` says: there is no more
FULL = 1  # it is enough for once
LOOK = 2  # the next batch needs a closer look

_RUN_BYTES = 256 * 1024  # enough for once: the bytes are still in the processor's cache when they are copied

# The same numbers where C works with them.
_TIMESTAMP_MS_MAX = TIMESTAMP_MS_MAX
_BASE_OFFSET_MAX = BASE_OFFSET_MAX
_INT32_MAX = 0x7FFFFFFF
_HEADER_SIZE = HEADER_SIZE
_LOG_OVERHEAD = LOG_OVERHEAD
_MAGIC = MAGIC
_COMPRESSED = COMPRESSION_MASK
_LOG_APPEND_TIME = LOG_APPEND_TIME
_TRANSACTIONAL = TRANSACTIONAL
_CONTROL = CONTROL
_COMPILED = __file__.endswith((".so", ".pyd"))


def is_compiled() -> bool:
    """Is this the version that a C compiler built?"""
    return bool(_COMPILED)


def scan_batches(
    records: memoryview,
    area: Buffer,
    position: int,
    start: int,
    end: int,
    look_at_transactions: bool,
    reached: Column,
    offset: Column,
    timestamp: Column,
    timestamp_type: Column,
    offset_delta: Column,
    key_start: Column,
    key_length: Column,
    value_start: Column,
    value_length: Column,
    headers_start: Column,
    headers_end: Column,
) -> int:
    """Go through batches that are plain and sound, from a position on, until something else comes.

    `records` and `area` are the same bytes. Batches that lie before `start` or hold no rows are passed over; nothing
    from `end` on is looked at. Fills the columns of all rows with their places in the area, and `reached` with the
    position of the next batch and the number of rows. What needs a closer look is a batch that is compressed, or wrong,
    or has more rows than the columns, or, if asked for, is of a transaction.
    """
    size = len(area)
    if position < 0 or len(reached) < 2 or size > _INT32_MAX:
        raise ValueError("a column is too short, or the batches are too long")
    began = position
    row = 0
    state = DONE
    while size - position >= _HEADER_SIZE:
        header = read_header(records, position)
        limit = position + _LOG_OVERHEAD + header.length
        if limit - position < _HEADER_SIZE or limit > size or header.base_offset >= end:
            break
        state = LOOK
        if header.base_offset < 0 or header.base_offset > _BASE_OFFSET_MAX:
            break
        if header.base_offset + header.last_offset_delta < start:
            position = limit
            state = DONE
            continue
        attributes = header.attributes
        count = header.record_count
        if header.magic != _MAGIC or attributes & _COMPRESSED or header.last_offset_delta < 0 or count < 0:
            break
        if look_at_transactions and attributes & (_TRANSACTIONAL | _CONTROL):
            break
        if crc32c(records[position + ATTRIBUTES_OFFSET : limit]) != header.crc:
            break
        if count > 0 and not attributes & _CONTROL:
            if count > len(offset) - row:
                if row > 0:
                    state = FULL
                break
            try:
                scan_batch(
                    area,
                    position + _HEADER_SIZE,
                    limit,
                    header,
                    row,
                    offset,
                    timestamp,
                    timestamp_type,
                    offset_delta,
                    key_start,
                    key_length,
                    value_start,
                    value_length,
                    headers_start,
                    headers_end,
                )
            except RecordError:
                break
            row += count
        position = limit
        if position - began >= _RUN_BYTES:
            state = FULL
            break
        state = DONE
    reached[0] = position
    reached[1] = row
    return state


def scan_batch(
    area: Buffer,
    begin: int,
    limit: int,
    header: BatchHeader,
    row: int,
    offset: Column,
    timestamp: Column,
    timestamp_type: Column,
    offset_delta: Column,
    key_start: Column,
    key_length: Column,
    value_start: Column,
    value_length: Column,
    headers_start: Column,
    headers_end: Column,
) -> None:
    """Fill the columns, from a row on, with the records of a batch that lie between two positions of an area."""
    count = header.record_count
    last = row + count
    if (
        begin < 0
        or limit < begin
        or limit > len(area)
        or row < 0
        or count < 0
        or last > len(offset)
        or last > len(timestamp)
        or last > len(timestamp_type)
        or last > len(offset_delta)
        or last > len(key_start)
        or last > len(key_length)
        or last > len(value_start)
        or last > len(value_length)
        or last > len(headers_start)
        or last > len(headers_end)
    ):
        raise ValueError("a column is shorter than its rows")
    scan(
        area[begin:limit],
        count,
        timestamp[row:last],
        offset_delta[row:last],
        key_start[row:last],
        key_length[row:last],
        value_start[row:last],
        value_length[row:last],
        headers_start[row:last],
        headers_end[row:last],
    )
    if count > 0 and offset_delta[last - 1] > header.last_offset_delta:
        raise RecordError(f"an offset delta of {offset_delta[last - 1]} after the last, {header.last_offset_delta}")
    is_of_log = header.attributes & _LOG_APPEND_TIME != 0
    base_offset = header.base_offset
    base = header.max_timestamp if is_of_log else header.base_timestamp
    if base > _TIMESTAMP_MS_MAX or base < -_TIMESTAMP_MS_MAX:
        raise RecordError(f"a timestamp of {base} ms fits no column")
    for index in range(row, last):
        delta = 0 if is_of_log else timestamp[index]
        if delta > _TIMESTAMP_MS_MAX - base or delta < -_TIMESTAMP_MS_MAX - base:
            raise RecordError(f"record {index - row}: a timestamp {delta} ms after {base} fits no column")
        timestamp[index] = (base + delta) * 1000
    # One column after the other: that is how a C compiler does several rows at once.
    for index in range(row, last):
        timestamp_type[index] = is_of_log
    for index in range(row, last):
        offset[index] = base_offset + offset_delta[index]
    for index in range(row, last):
        key_start[index] += begin
    for index in range(row, last):
        value_start[index] += begin
    for index in range(row, last):
        headers_start[index] += begin
    for index in range(row, last):
        headers_end[index] += begin


def rows_within(
    key_length: Column,
    value_length: Column,
    headers_start: Column,
    headers_end: Column,
    first: int,
    last: int,
    with_key: bool,
    with_value: bool,
    with_headers: bool,
    bytes_room: int,
) -> int:
    """The row before which the chosen fields of the rows from `first` on take no more than so many bytes."""
    if (
        first < 0
        or last > len(key_length)
        or last > len(value_length)
        or last > len(headers_start)
        or last > len(headers_end)
    ):
        raise ValueError("a column is shorter than its rows")
    for index in range(first, last):
        if with_key and key_length[index] > 0:
            bytes_room -= key_length[index]
        if with_value and value_length[index] > 0:
            bytes_room -= value_length[index]
        if with_headers:
            bytes_room -= headers_end[index] - headers_start[index]
        if bytes_room < 0:
            return index
    return max(first, last)


def total_length(length: Column, first: int, last: int) -> int:
    """How many bytes the fields of these rows take together."""
    if first < 0 or last > len(length):
        raise ValueError("a column is shorter than its rows")
    total = 0
    for index in range(first, last):
        if length[index] > 0:
            total += length[index]
    return total


def gather(
    area: Buffer,
    start: Column,
    length: Column,
    first: int,
    last: int,
    row: int,
    offsets: Column,
    data: bytearray | memoryview,
    validity: bytearray | memoryview,
) -> None:
    """Copy one field of some records behind what a column has already, from its row `row` on.

    `offsets[row]` says where the data goes on; the bits of nulls are cleared.
    """
    size = len(area)
    room = len(data)
    count = last - first
    if (
        first < 0
        or count < 0
        or last > len(start)
        or last > len(length)
        or row < 0
        or row + count >= len(offsets)
        or row + count > 8 * len(validity)
    ):
        raise ValueError("a column is shorter than its rows")
    position = offsets[row]
    if position < 0 or position > room:
        raise ValueError("the data begins outside its buffer")
    for index in range(first, last):
        field_size = length[index]
        if field_size > 0:
            field_start = start[index]
            if field_start < 0 or field_start > size - field_size or field_size > room - position:
                raise RecordError(f"record {index}: a field lies outside its buffer")
            position = _copying.copy(data, position, area, field_start, field_size)
        elif field_size < 0:
            validity[row >> 3] &= 0xFF ^ (1 << (row & 7))
        row += 1
        offsets[row] = position


def _number_end(data: Buffer, position: int, limit: int) -> int:
    """Where the varint at a position ends; -1 if the bytes end first or it has more than 32 bits."""
    if limit - position > 5:
        limit = position + 5
    while position < limit:
        position += 1
        if data[position - 1] < 0x80:
            return position
    return -1


def _number(data: Buffer, position: int, end: int) -> int:
    """The zigzag number between two positions that `_number_end` has found good."""
    raw = 0
    shift = 0
    while position < end:
        septet = data[position] & 0x7F
        raw |= septet << shift
        shift += 7
        position += 1
    return (raw >> 1) ^ -(raw & 1)


def measure_headers(
    area: Buffer, headers_start: Column, headers_end: Column, first: int, last: int, found: Column
) -> None:
    """How many headers some records have, and the bytes that they take with their lengths."""
    if first < 0 or last > len(headers_start) or last > len(headers_end) or len(found) < 2:
        raise ValueError("a column is shorter than its rows")
    headers = 0
    size = 0
    for index in range(first, last):
        position = headers_start[index]
        limit = headers_end[index]
        if position < 0 or limit > len(area):
            raise RecordError(f"record {index}: its headers lie outside their buffer")
        end = _number_end(area, position, limit)
        here = _number(area, position, end) if end >= 0 else -1
        if here < 0 or here > limit - end:
            raise RecordError(f"record {index}: bad headers")
        headers += here
        size += limit - end
    found[0] = headers
    found[1] = size


def gather_headers(
    area: Buffer,
    headers_start: Column,
    headers_end: Column,
    first: int,
    last: int,
    row: int,
    list_offsets: Column,
    list_validity: bytearray | memoryview,
    key_offsets: Column,
    keys: bytearray | memoryview,
    value_offsets: Column,
    values: bytearray | memoryview,
    value_validity: bytearray | memoryview,
) -> None:
    """Copy the headers of some records behind what the columns have already, from row `row` on; none at all is null.

    As many headers and bytes as `measure_headers` finds are always enough room.
    """
    count = last - first
    if (
        first < 0
        or count < 0
        or last > len(headers_start)
        or last > len(headers_end)
        or row < 0
        or row + count >= len(list_offsets)
        or row + count > 8 * len(list_validity)
    ):
        raise ValueError("a column is shorter than its rows")
    header = list_offsets[row]
    header_room = min(len(key_offsets), len(value_offsets)) - 1
    header_room = min(header_room, 8 * len(value_validity))
    if header < 0 or header > header_room:
        raise ValueError("the headers begin outside their columns")
    key_position = key_offsets[header]
    value_position = value_offsets[header]
    if key_position < 0 or key_position > len(keys) or value_position < 0 or value_position > len(values):
        raise ValueError("the headers begin outside their columns")
    for index in range(first, last):
        position = headers_start[index]
        limit = headers_end[index]
        if position < 0 or limit > len(area):
            raise RecordError(f"record {index}: its headers lie outside their buffer")
        end = _number_end(area, position, limit)
        if end < 0:
            raise RecordError(f"record {index}: bad headers")
        here = _number(area, position, end)
        if here < 0 or here > header_room - header:
            raise RecordError(f"record {index}: no room for {here} headers")
        if here == 0:
            list_validity[row >> 3] &= 0xFF ^ (1 << (row & 7))
        for _ in range(here):
            position = end
            end = _number_end(area, position, limit)
            length = _number(area, position, end) if end >= 0 else -1
            if length < 0 or length > limit - end or length > len(keys) - key_position:
                raise RecordError(f"record {index}: bad headers")
            key_position = _copying.copy(keys, key_position, area, end, length)

            position = end + length
            end = _number_end(area, position, limit)
            length = _number(area, position, end) if end >= 0 else -2
            if length < -1 or length > limit - end or length > len(values) - value_position:
                raise RecordError(f"record {index}: bad headers")
            if length < 0:
                value_validity[header >> 3] &= 0xFF ^ (1 << (header & 7))
            else:
                value_position = _copying.copy(values, value_position, area, end, length)
                end += length
            header += 1
            key_offsets[header] = key_position
            value_offsets[header] = value_position
        row += 1
        list_offsets[row] = header
