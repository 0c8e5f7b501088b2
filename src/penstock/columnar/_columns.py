"""The loops from records to Arrow's columns, without a Python object for any record.

`wire/_records.py` has found where the fields of each record lie in an area; the loops here copy them one behind the
other, as Arrow wants them: bytes, offsets into them, and one bit for each row that is 0 where it is null.

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_columns.pxd`; indexes are
then not checked by the language, so every loop looks at what remains of its buffers before it reads or writes, and
every number stays within 64 bits.
"""

from __future__ import annotations

from penstock.base.world import Buffer
from penstock.wire import _copying
from penstock.wire._records import Column, RecordError

TIMESTAMP_MS_MAX = 9_223_372_036_854_775  # what fits into 64 bits as microseconds

_TIMESTAMP_MS_MAX = TIMESTAMP_MS_MAX  # the same where C works with it
_COMPILED = __file__.endswith((".so", ".pyd"))


def is_compiled() -> bool:
    """Is this the version that a C compiler built?"""
    return bool(_COMPILED)


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


def gather_offsets(offset_delta: Column, base_offset: int, first: int, last: int, row: int, offsets: Column) -> None:
    """The offset of each record; the caller knows that all of them fit into 64 bits."""
    if first < 0 or last < first or last > len(offset_delta) or row < 0 or row + (last - first) > len(offsets):
        raise ValueError("a column is shorter than its rows")
    row -= first
    for index in range(first, last):
        offsets[row + index] = base_offset + offset_delta[index]


def gather_timestamps(
    timestamp_delta: Column, base_timestamp: int, first: int, last: int, row: int, timestamps: Column
) -> None:
    """The time of each record in microseconds."""
    if first < 0 or last < first or last > len(timestamp_delta) or row < 0 or row + (last - first) > len(timestamps):
        raise ValueError("a column is shorter than its rows")
    if base_timestamp > _TIMESTAMP_MS_MAX or base_timestamp < -_TIMESTAMP_MS_MAX:
        raise RecordError(f"a timestamp of {base_timestamp} ms fits no column")
    row -= first
    for index in range(first, last):
        delta = timestamp_delta[index]
        if delta > _TIMESTAMP_MS_MAX - base_timestamp or delta < -_TIMESTAMP_MS_MAX - base_timestamp:
            raise RecordError(f"record {index}: a timestamp {delta} ms after {base_timestamp} fits no column")
        timestamps[row + index] = (base_timestamp + delta) * 1000


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
