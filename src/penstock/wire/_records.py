"""The loops that touch every record: find the fields of records, and write records from fields.

One record, after decompression, where every number is a zigzag varint:

    length | attributes (1 byte) | timestamp delta | offset delta | key length | key | value length | value |
    header count | headers, each: key length | key | value length | value

A length of -1 stands for null. Both loops speak in columns: for each record where its key, value and headers lie in a
buffer, and its deltas. The caller provides the columns (anything writable that holds int32 or int64: `array.array`,
Arrow and numpy buffers), so that a million records become columns without a Python object each.

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_records.pxd`; indexes are
then not checked by the language, so everything here looks at the bytes that remain before it reads or writes, and
every number stays within 64 bits.
"""

from __future__ import annotations

from collections.abc import MutableSequence

from penstock.base.world import Buffer
from penstock.wire import _copying

Column = MutableSequence[int] | memoryview

RECORD_SIZE_MIN = 7  # seven fields of one byte each: null key, null value, no headers
RECORD_OVERHEAD_MAX = 32  # length 5, attributes 1, timestamp 10, offset 5, key 5, value 5, no headers 1

_COMPILED = __file__.endswith((".so", ".pyd"))


class RecordError(ValueError):
    """Records that cannot be read, or fields that cannot be written as records."""


def is_compiled() -> bool:
    """Is this the version that a C compiler built?"""
    return bool(_COMPILED)


def _varint_end(data: Buffer, position: int, limit: int, size_max: int) -> int:
    """Where the varint at a position ends; -1 if the bytes end first or it is too long: 5 for 32 bits, 10 for 64."""
    if position < limit and data[position] < 0x80:
        return position + 1
    if position + 1 < limit and data[position + 1] < 0x80:
        return position + 2
    return _long_varint_end(data, position, limit, size_max)


def _long_varint_end(data: Buffer, position: int, limit: int, size_max: int) -> int:
    """The same for a varint of any size; apart, so that the common case stays small enough to be inlined."""
    if limit - position > size_max:
        limit = position + size_max
    while position < limit:
        if data[position] < 0x80:
            return position + 1
        position += 1
    return -1


def _varint(data: Buffer, position: int, end: int) -> int:
    """The number in the varint between two positions that `_varint_end` has found good."""
    if end - position > 2:
        return _long_varint(data, position, end)
    raw = data[position]
    if end - position == 2:
        raw = (raw & 0x7F) | (data[position + 1] << 7)
    return (raw >> 1) ^ -(raw & 1)


def _long_varint(data: Buffer, position: int, end: int) -> int:
    number = 0
    shift = 0
    while position < end:
        septet = data[position] & 0x7F
        if shift == 63:
            septet &= 1  # the tenth byte has room for one bit of the sixty-four
        number |= septet << shift
        shift += 7
        position += 1
    low = number & 1
    number >>= 1
    return number if low == 0 else -1 - number


def _headers_are_sound(data: Buffer, position: int, limit: int) -> bool:
    """Do the headers of one record, with their count before them, fill exactly the bytes up to the limit?"""
    end = _varint_end(data, position, limit, 5)
    if end < 0:
        return False
    count = _varint(data, position, end)
    if count < 0 or count > limit - end:
        return False
    for _ in range(count):
        position = end
        end = _varint_end(data, position, limit, 5)
        if end < 0:
            return False
        length = _varint(data, position, end)
        if length < 0 or length > limit - end:
            return False
        position = end + length
        end = _varint_end(data, position, limit, 5)
        if end < 0:
            return False
        length = _varint(data, position, end)
        if length < -1 or length > limit - end:
            return False
        if length > 0:
            end += length
    return end == limit


def scan(
    area: Buffer,
    count: int,
    timestamp_delta: Column,
    offset_delta: Column,
    key_start: Column,
    key_length: Column,
    value_start: Column,
    value_length: Column,
    headers_start: Column,
    headers_end: Column,
) -> None:
    """Fill the columns from an area that must hold exactly this many records, their offset deltas ascending from >= 0.

    `timestamp_delta` holds int64, the others int32. Headers are located with their count; a null has length -1.
    """
    size = len(area)
    if count < 0 or count > size // RECORD_SIZE_MIN or size > 0x7FFFFFFF:
        raise RecordError(f"{size} bytes cannot hold {count} records")
    if (
        len(timestamp_delta) < count
        or len(offset_delta) < count
        or len(key_start) < count
        or len(key_length) < count
        or len(value_start) < count
        or len(value_length) < count
        or len(headers_start) < count
        or len(headers_end) < count
    ):
        raise ValueError(f"a column is shorter than {count} records")
    position = 0
    last_offset_delta = -1
    for index in range(count):
        end = _varint_end(area, position, size, 5)
        if end < 0:
            raise RecordError(f"record {index}: bad length")
        length = _varint(area, position, end)
        if length < 6 or length > size - end:
            raise RecordError(f"record {index}: a length of {length}, {size - end} bytes are left")
        limit = end + length

        position = end + 1  # the attributes of a record mean nothing yet
        end = _varint_end(area, position, limit, 10)
        if end < 0:
            raise RecordError(f"record {index}: bad timestamp")
        timestamp_delta[index] = _varint(area, position, end)

        position = end
        end = _varint_end(area, position, limit, 5)
        if end < 0:
            raise RecordError(f"record {index}: bad offset")
        length = _varint(area, position, end)
        if length <= last_offset_delta or length > 0x7FFFFFFF:
            raise RecordError(f"record {index}: an offset delta of {length} after {last_offset_delta}")
        offset_delta[index] = last_offset_delta = length

        position = end
        end = _varint_end(area, position, limit, 5)
        if end < 0:
            raise RecordError(f"record {index}: bad key length")
        length = _varint(area, position, end)
        if length < -1 or length > limit - end:
            raise RecordError(f"record {index}: a key of {length} bytes, {limit - end} are left")
        key_start[index] = end
        key_length[index] = length

        position = end + length if length > 0 else end
        end = _varint_end(area, position, limit, 5)
        if end < 0:
            raise RecordError(f"record {index}: bad value length")
        length = _varint(area, position, end)
        if length < -1 or length > limit - end:
            raise RecordError(f"record {index}: a value of {length} bytes, {limit - end} are left")
        value_start[index] = end
        value_length[index] = length

        position = end + length if length > 0 else end
        if (limit - position != 1 or area[position] != 0) and not _headers_are_sound(area, position, limit):
            raise RecordError(f"record {index}: bad headers")
        headers_start[index] = position
        headers_end[index] = limit
        position = limit
    if position != size:
        raise RecordError(f"{size - position} bytes are left after {count} records")


def _varint_size(number: int) -> int:
    """How many bytes a number takes as a zigzag varint."""
    if -64 <= number < 64:
        return 1
    if number < 0:
        number = -1 - number
    size = 1
    number >>= 6
    while number:
        number >>= 7
        size += 1
    return size


def _put_varint(out: bytearray | memoryview, position: int, number: int) -> int:
    """Write a zigzag varint where there is room for it; the position after it."""
    if -64 <= number < 64:
        out[position] = number << 1 if number >= 0 else ((-1 - number) << 1) | 1
        return position + 1
    return _put_long_varint(out, position, number)


def _put_long_varint(out: bytearray | memoryview, position: int, number: int) -> int:
    if number < 0:
        sign = 1
        number = -1 - number
    else:
        sign = 0
    septet = ((number & 0x3F) << 1) | sign
    number >>= 6
    while number:
        out[position] = septet | 0x80
        position += 1
        septet = number & 0x7F
        number >>= 7
    out[position] = septet
    return position + 1


def encode(
    out: bytearray | memoryview,
    count: int,
    timestamp_delta: Column,
    offset_delta: Column,
    keys: Buffer,
    key_start: Column,
    key_length: Column,
    values: Buffer,
    value_start: Column,
    value_length: Column,
    headers: Buffer,
    headers_start: Column,
    headers_end: Column,
) -> int:
    """Write records into `out`, as `scan` finds them, and say how many bytes they took.

    The headers of a record are the bytes that `scan` locates (with their count); start equal to end stands for none.
    Room for `RECORD_OVERHEAD_MAX` bytes for each record beside its key, value and headers is always enough.
    """
    if (
        count < 0
        or len(timestamp_delta) < count
        or len(offset_delta) < count
        or len(key_start) < count
        or len(key_length) < count
        or len(value_start) < count
        or len(value_length) < count
        or len(headers_start) < count
        or len(headers_end) < count
    ):
        raise ValueError(f"a column is shorter than {count} records")
    room = len(out)
    key_limit = len(keys)
    value_limit = len(values)
    header_limit = len(headers)
    position = 0
    for index in range(count):
        key_from = key_start[index]
        key_size = key_length[index]
        value_from = value_start[index]
        value_size = value_length[index]
        headers_from = headers_start[index]
        headers_size = headers_end[index] - headers_from
        timestamp = timestamp_delta[index]
        offset = offset_delta[index]
        if key_size < -1 or (key_size > 0 and (key_from < 0 or key_from > key_limit - key_size)):
            raise RecordError(f"record {index}: its key lies outside the keys")
        if value_size < -1 or (value_size > 0 and (value_from < 0 or value_from > value_limit - value_size)):
            raise RecordError(f"record {index}: its value lies outside the values")
        if headers_size < 0 or (headers_size > 0 and (headers_from < 0 or headers_from > header_limit - headers_size)):
            raise RecordError(f"record {index}: its headers lie outside the headers")

        length = 1 + _varint_size(timestamp) + _varint_size(offset) + _varint_size(key_size) + _varint_size(value_size)
        length += headers_size if headers_size > 0 else 1
        if key_size > 0:
            length += key_size
        if value_size > 0:
            length += value_size
        if length > 0x7FFFFFFF or length > room - position - 5:
            raise RecordError(f"record {index}: no room for {length} bytes")

        position = _put_varint(out, position, length)
        out[position] = 0
        position = _put_varint(out, position + 1, timestamp)
        position = _put_varint(out, position, offset)
        position = _put_varint(out, position, key_size)
        if key_size > 0:
            position = _copying.copy(out, position, keys, key_from, key_size)
        position = _put_varint(out, position, value_size)
        if value_size > 0:
            position = _copying.copy(out, position, values, value_from, value_size)
        if headers_size > 0:
            position = _copying.copy(out, position, headers, headers_from, headers_size)
        else:
            out[position] = 0
            position += 1
    return position
