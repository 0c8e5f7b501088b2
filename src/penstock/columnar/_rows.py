"""The loops from Arrow's columns to records, without a Python object for any row.

They find where the fields of each row lie in Arrow's buffers, choose a partition for each row, sort the rows by
partition and say how many of them fit into a batch; `wire/_records.py` then writes them. An empty bitmap stands for "no
nulls".

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_rows.pxd`; indexes are
then not checked by the language, so every loop looks at what remains of its buffers before it reads or writes, and
every number stays within 64 bits.
"""

from __future__ import annotations

from penstock.base.world import Buffer
from penstock.columnar._columns import TIMESTAMP_MS_MAX
from penstock.wire import _copying
from penstock.wire._records import Column

NO_ROW = -1

# The same numbers where C works with them.
_TIMESTAMP_MS_MAX = TIMESTAMP_MS_MAX
_INT32_MAX = 0x7FFFFFFF
_UINT32_MAX = 0xFFFFFFFF
_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_COMPILED = __file__.endswith((".so", ".pyd"))


def is_compiled() -> bool:
    """Is this the version that a C compiler built?"""
    return bool(_COMPILED)


def _is_null(validity: Buffer, row: int) -> bool:
    return len(validity) > 0 and not (validity[row >> 3] >> (row & 7)) & 1


def locate(
    offsets: Column,
    first: int,
    count: int,
    data_start: int,
    data_size: int,
    validity: Buffer,
    validity_first: int,
    start: Column,
    length: Column,
) -> None:
    """Where each of `count` fields of an Arrow column lies, counted from `data_start`; a null has length -1."""
    if (
        first < 0
        or count < 0
        or first + count >= len(offsets)
        or count > len(start)
        or count > len(length)
        or data_size < 0
        or data_size > _INT32_MAX
        or validity_first < 0
        or (len(validity) > 0 and validity_first + count > 8 * len(validity))
    ):
        raise ValueError("a column is shorter than its rows")
    for index in range(count):
        if _is_null(validity, validity_first + index):
            start[index] = 0
            length[index] = -1
            continue
        begin = offsets[first + index] - data_start
        end = offsets[first + index + 1] - data_start
        if begin < 0 or end < begin or end > data_size:
            raise ValueError(f"row {index} lies outside its buffer")
        start[index] = begin
        length[index] = end - begin


def murmur2(data: Buffer, start: int, length: int) -> int:
    """The hash by which the Java client spreads keys; unsigned here."""
    if start < 0 or length < 0 or length > len(data) - start:
        raise ValueError("the key lies outside its buffer")
    return _murmur2(data, start, length)


def _murmur2(data: Buffer, start: int, length: int) -> int:
    state = (_MURMUR_SEED ^ length) & _UINT32_MAX
    position = start
    end = start + (length & ~3)
    while position < end:
        word = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        byte = data[position + 3]
        word |= byte << 24
        word = (word * _MURMUR_FACTOR) & _UINT32_MAX
        word ^= word >> 24
        word = (word * _MURMUR_FACTOR) & _UINT32_MAX
        state = ((state * _MURMUR_FACTOR) & _UINT32_MAX) ^ word
        position += 4
    rest = length & 3
    if rest == 3:
        state ^= data[position + 2] << 16
    if rest >= 2:
        state ^= data[position + 1] << 8
    if rest >= 1:
        state ^= data[position]
        state = (state * _MURMUR_FACTOR) & _UINT32_MAX
    state ^= state >> 13
    state = (state * _MURMUR_FACTOR) & _UINT32_MAX
    return state ^ (state >> 15)


def choose_partitions(
    count: int,
    partitions: int,
    keys: Buffer,
    key_start: Column,
    key_length: Column,
    value_length: Column,
    given: Column,
    given_first: int,
    given_validity: Buffer,
    run: Column,
    chosen: Column,
) -> int:
    """The partition of each row: the given one, else that of its key, else the one whose turn it is.

    `given` is empty if nothing is given. `run` holds, and keeps, the partition whose turn it is, how many bytes it
    still gets, and how many each gets in its turn. The answer is `NO_ROW`, or the first row whose given partition is
    not there.
    """
    is_given = len(given) > 0
    if (
        count < 0
        or count > len(key_start)
        or count > len(key_length)
        or count > len(value_length)
        or count > len(chosen)
        or len(run) < 3
        or given_first < 0
        or (is_given and given_first + count > len(given))
        or (len(given_validity) > 0 and given_first + count > 8 * len(given_validity))
    ):
        raise ValueError("a column is shorter than its rows")
    turn = run[0]
    left = run[1]
    if partitions < 1 or partitions > _INT32_MAX or turn < 0 or turn >= partitions:
        raise ValueError(f"{partitions} partitions, and it is the turn of {turn}")
    for index in range(count):
        length = key_length[index]
        if is_given and not _is_null(given_validity, given_first + index):
            partition = given[given_first + index]
            if partition < 0 or partition >= partitions:
                return index
        elif length >= 0:
            begin = key_start[index]
            if begin < 0 or length > len(keys) - begin:
                raise ValueError(f"the key of row {index} lies outside its buffer")
            state = _murmur2(keys, begin, length) & _INT32_MAX
            partition = state % partitions
        else:
            if left <= 0:
                turn = turn + 1 if turn + 1 < partitions else 0
                left = run[2]
            left -= 8
            if value_length[index] > 0:
                left -= value_length[index]
            partition = turn
        chosen[index] = partition
    run[0] = turn
    run[1] = left
    return NO_ROW


def sort_by_partition(chosen: Column, count: int, partitions: int, ends: Column, order: Column) -> None:
    """The rows of each partition, in their order, partition behind partition; `ends` says where those of each end."""
    if count < 0 or count > len(chosen) or count > len(order) or partitions < 1 or partitions + 1 > len(ends):
        raise ValueError("a column is shorter than its rows")
    for partition in range(partitions + 1):
        ends[partition] = 0
    for index in range(count):
        partition = chosen[index]
        if partition < 0 or partition >= partitions:
            raise ValueError(f"row {index}: there is no partition {partition}")
        ends[partition + 1] += 1
    for partition in range(partitions):
        ends[partition + 1] += ends[partition]
    for index in range(count):
        partition = chosen[index]
        place = ends[partition]
        order[place] = index
        ends[partition] = place + 1


def arrange(source: Column, order: Column, count: int, target: Column) -> None:
    """A column of 32-bit numbers in another order."""
    size = len(source)
    if count < 0 or count > len(order) or count > len(target):
        raise ValueError("a column is shorter than its rows")
    for index in range(count):
        row = order[index]
        if row < 0 or row >= size:
            raise ValueError(f"there is no row {row}")
        target[index] = source[row]


def arrange_long(source: Column, order: Column, count: int, target: Column) -> None:
    """A column of 64-bit numbers in another order."""
    size = len(source)
    if count < 0 or count > len(order) or count > len(target):
        raise ValueError("a column is shorter than its rows")
    for index in range(count):
        row = order[index]
        if row < 0 or row >= size:
            raise ValueError(f"there is no row {row}")
        target[index] = source[row]


def _size_of_number(number: int) -> int:
    """How many bytes a number takes as a zigzag varint."""
    if number < 0:
        number = -1 - number
    size = 1
    number >>= 6
    while number:
        number >>= 7
        size += 1
    return size


def _size_of_fields(key_size: int, value_size: int, headers_size: int) -> int:
    """How many bytes of a record its attributes, key, value and headers take."""
    size = 1 + _size_of_number(key_size) + _size_of_number(value_size)
    size += headers_size if headers_size > 0 else 1
    if key_size > 0:
        size += key_size
    if value_size > 0:
        size += value_size
    return size


def size_alone(key_size: int, value_size: int, headers_size: int) -> int:
    """How many bytes a record takes that is the only one of its batch; -1 for a null."""
    size = 2 + _size_of_fields(key_size, value_size, headers_size)
    return size + _size_of_number(size)


def first_too_large(
    key_length: Column, value_length: Column, headers_start: Column, headers_end: Column, count: int, size_max: int
) -> int:
    """The first row that takes more than so many bytes as a record of its own, or `NO_ROW`."""
    if (
        count < 0
        or count > len(key_length)
        or count > len(value_length)
        or count > len(headers_start)
        or count > len(headers_end)
    ):
        raise ValueError("a column is shorter than its rows")
    for index in range(count):
        size = 2 + _size_of_fields(key_length[index], value_length[index], headers_end[index] - headers_start[index])
        if size + _size_of_number(size) > size_max:
            return index
    return NO_ROW


def fit(
    timestamps: Column,
    base_timestamp: int,
    first: int,
    last: int,
    count_before: int,
    key_length: Column,
    value_length: Column,
    headers_start: Column,
    headers_end: Column,
    room: int,
    timestamp_delta: Column,
    found: Column,
) -> int:
    """How many of the rows fit into the room that a batch of `count_before` records has left.

    Fills in their timestamp deltas, and `found` with the bytes that they take and the latest of their times.
    """
    if (
        first < 0
        or last < first
        or last > len(timestamps)
        or last > len(key_length)
        or last > len(value_length)
        or last > len(headers_start)
        or last > len(headers_end)
        or last - first > len(timestamp_delta)
        or len(found) < 2
        or count_before < 0
        or last - first > _INT32_MAX - count_before
    ):
        raise ValueError("a column is shorter than its rows")
    if base_timestamp > _TIMESTAMP_MS_MAX or base_timestamp < -_TIMESTAMP_MS_MAX:
        raise ValueError(f"a timestamp of {base_timestamp} ms fits no column")
    taken = 0
    latest = -_TIMESTAMP_MS_MAX
    count = 0
    while first + count < last:
        index = first + count
        timestamp = timestamps[index]
        if timestamp > _TIMESTAMP_MS_MAX or timestamp < -_TIMESTAMP_MS_MAX:
            raise ValueError(f"a timestamp of {timestamp} ms fits no column")
        size = _size_of_fields(key_length[index], value_length[index], headers_end[index] - headers_start[index])
        size += _size_of_number(timestamp - base_timestamp) + _size_of_number(count_before + count)
        size += _size_of_number(size)
        if size > room - taken:
            break
        timestamp_delta[count] = timestamp - base_timestamp
        if timestamp > latest:
            latest = timestamp
        taken += size
        count += 1
    found[0] = taken
    found[1] = latest
    return count


def _put_number(out: bytearray | memoryview, position: int, number: int) -> int:
    """Write a zigzag varint that is at least -1 where there is room for it; the position after it."""
    number = number << 1 if number >= 0 else 1
    while number > 0x7F:
        out[position] = (number & 0x7F) | 0x80
        position += 1
        number >>= 7
    out[position] = number
    return position + 1


def write_headers(
    count: int,
    list_offsets: Column,
    list_first: int,
    list_validity: Buffer,
    key_offsets: Column,
    key_first: int,
    key_validity: Buffer,
    keys: Buffer,
    value_offsets: Column,
    value_first: int,
    value_validity: Buffer,
    values: Buffer,
    out: bytearray | memoryview,
    headers_start: Column,
    headers_end: Column,
) -> int:
    """The headers of each row as a record has them, with their count before them, and where those of each row lie.

    Each column comes with the index of its first row in its buffers. Room for 5 bytes for each row and 10 for each
    header beside its key and value is always enough. The answer is `NO_ROW`, or the first row with a key that is null.
    """
    if (
        count < 0
        or list_first < 0
        or key_first < 0
        or value_first < 0
        or list_first + count >= len(list_offsets)
        or count > len(headers_start)
        or count > len(headers_end)
        or (len(list_validity) > 0 and list_first + count > 8 * len(list_validity))
    ):
        raise ValueError("a column is shorter than its rows")
    room = len(out)
    position = 0
    for index in range(count):
        headers_start[index] = position
        headers_end[index] = position
        header = list_offsets[list_first + index]
        last = list_offsets[list_first + index + 1]
        if header >= last or _is_null(list_validity, list_first + index):
            continue
        if header < 0 or key_first + last >= len(key_offsets) or value_first + last >= len(value_offsets):
            raise ValueError(f"the headers of row {index} lie outside their buffers")
        if len(key_validity) > 0 and key_first + last > 8 * len(key_validity):
            raise ValueError(f"the headers of row {index} lie outside their buffers")
        if len(value_validity) > 0 and value_first + last > 8 * len(value_validity):
            raise ValueError(f"the headers of row {index} lie outside their buffers")
        if room - position < 5:
            raise ValueError(f"no room for the headers of row {index}")
        position = _put_number(out, position, last - header)
        while header < last:
            if _is_null(key_validity, key_first + header):
                return index
            begin = key_offsets[key_first + header]
            length = key_offsets[key_first + header + 1] - begin
            if begin < 0 or length < 0 or length > len(keys) - begin or length > room - position - 5:
                raise ValueError(f"the headers of row {index} lie outside their buffers")
            position = _put_number(out, position, length)
            position = _copying.copy(out, position, keys, begin, length)
            if _is_null(value_validity, value_first + header):
                length = -1
            else:
                begin = value_offsets[value_first + header]
                length = value_offsets[value_first + header + 1] - begin
                if begin < 0 or length < 0 or length > len(values) - begin:
                    raise ValueError(f"the headers of row {index} lie outside their buffers")
            if length > room - position - 5:
                raise ValueError(f"no room for the headers of row {index}")
            position = _put_number(out, position, length)
            if length > 0:
                position = _copying.copy(out, position, values, begin, length)
            header += 1
        headers_end[index] = position
    return NO_ROW
