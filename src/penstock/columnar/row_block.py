"""A block of rows on their way into batches: where the fields of each row lie, and the rows sorted by partition.

One block object is used again and again, so that its columns of numbers are made once. A block is short enough for all
its bytes to be reached by 32-bit positions, and for its columns to stay in the processor's cache.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.base.world import Buffer
from penstock.columnar._rows import (
    NO_ROW,
    arrange,
    arrange_long,
    choose_partitions,
    first_too_large,
    locate,
    sort_by_partition,
    write_headers,
)
from penstock.columnar.row_columns import Headers, Memory, RowColumns

ROWS_MAX = 32 * 1024

_BYTES_MAX = 2**31 - 1
_HEADERS_OVERHEAD_MAX = 5  # the number of a row's headers
_HEADER_OVERHEAD_MAX = 10  # the lengths of a key and a value
_NOTHING = memoryview(b"")
_NONE_GIVEN = Memory(0, memoryview(array("i")), _NOTHING, _NOTHING)
_ZEROS = memoryview(array("i", bytes(4 * ROWS_MAX)))
_NULLS = memoryview(array("i", [-1]) * ROWS_MAX)


def _numbers(format: Literal["i", "q"]) -> memoryview:
    return memoryview(array(format, [0]) * ROWS_MAX)


@dataclass(slots=True)
class Fields:
    """For each row its time, and where its fields lie: the length of a null is -1; no headers end where they start."""

    timestamp: memoryview
    key_start: memoryview
    key_length: memoryview
    value_start: memoryview
    value_length: memoryview
    headers_start: memoryview
    headers_end: memoryview

    @classmethod
    def allocate(cls) -> Fields:
        return cls(_numbers("q"), *(_numbers("i") for _ in range(6)))


class RowBlock:
    """Some rows of a topic with so many partitions. First load, then look for what is wrong, then sort."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._found = Fields.allocate()
        self._sorted = Fields.allocate()
        self._chosen = _numbers("i")
        self._order = _numbers("i")
        self._ends = array("i", bytes(4 * (partitions + 1)))
        self._given = _NONE_GIVEN
        self._headers_memory = bytearray()
        self.count = 0
        self.keys: Buffer = _NOTHING
        self.values: Buffer = _NOTHING
        self.headers: Buffer = _NOTHING
        self.fields = self._found

    def load(self, columns: RowColumns, first: int, now_ms: int) -> int:
        """Take rows from `first` on, as many as a block holds. Returns the first row with a header that has no key."""
        self.count = self._rows_within(columns, first)
        found = self._found
        self.keys = self._locate(columns.key, first, found.key_start, found.key_length)
        self.values = self._locate(columns.value, first, found.value_start, found.value_length)
        if columns.timestamp is None:
            found.timestamp[: self.count] = array("q", [now_ms]) * self.count
        else:
            start = columns.timestamp.first + first
            found.timestamp[: self.count] = columns.timestamp.numbers[start : start + self.count]
        given = columns.partition
        self._given = _NONE_GIVEN if given is None else given._replace(first=given.first + first)
        return self._load_headers(columns.headers, first)

    def _rows_within(self, columns: RowColumns, first: int) -> int:
        count = min(ROWS_MAX, columns.count - first)
        while count > 1 and max(_size_of_rows(columns, first, count)) > _BYTES_MAX:
            count //= 2
        return count

    def _locate(self, column: Memory | None, first: int, start: memoryview, length: memoryview) -> Buffer:
        if column is None:
            start[: self.count] = _ZEROS[: self.count]
            length[: self.count] = _NULLS[: self.count]
            return _NOTHING
        row = column.first + first
        data_start, data_end = column.numbers[row], column.numbers[row + self.count]
        size_bytes = data_end - data_start
        locate(column.numbers, row, self.count, data_start, size_bytes, column.validity, row, start, length)
        return column.data[data_start:data_end]

    def _load_headers(self, headers: Headers | None, first: int) -> int:
        found = self._found
        if headers is None:
            found.headers_start[: self.count] = found.headers_end[: self.count] = _ZEROS[: self.count]
            self.headers = _NOTHING
            return NO_ROW
        room = _size_of_headers(headers, first, self.count)
        if len(self._headers_memory) < room:
            self._headers_memory = bytearray(room)
        self.headers = self._headers_memory
        lists, keys, values = headers
        return write_headers(
            self.count,
            lists.numbers,
            lists.first + first,
            lists.validity,
            keys.numbers,
            keys.first,
            keys.validity,
            keys.data,
            values.numbers,
            values.first,
            values.validity,
            values.data,
            self._headers_memory,
            found.headers_start,
            found.headers_end,
        )

    def first_too_large(self, size_max: int) -> int:
        """The first row whose record takes more than so many bytes, or `NO_ROW`."""
        found = self._found
        return first_too_large(
            found.key_length, found.value_length, found.headers_start, found.headers_end, self.count, size_max
        )

    def sizes(self, row: int) -> tuple[int, int, int]:
        """Of key, value and headers of a row."""
        found = self._found
        return found.key_length[row], found.value_length[row], found.headers_end[row] - found.headers_start[row]

    def given_partition(self, row: int) -> int:
        return self._given.numbers[self._given.first + row]

    def choose(self, run: array[int]) -> int:
        """Choose the partition of each row. Returns the first whose given partition is not there, or `NO_ROW`."""
        found, given = self._found, self._given
        return choose_partitions(
            self.count,
            self._partitions,
            self.keys,
            found.key_start,
            found.key_length,
            found.value_length,
            given.numbers,
            given.first,
            given.validity,
            run,
            self._chosen,
        )

    def sort(self) -> list[tuple[int, int, int]]:
        """Sort the rows by partition, into `fields`: (partition, first, after the last) for each that has rows."""
        sort_by_partition(self._chosen, self.count, self._partitions, self._ends, self._order)
        bounds = []
        first = 0
        for partition, last in enumerate(self._ends[: self._partitions]):
            if last > first:
                bounds.append((partition, first, last))
            first = last
        self.fields = self._found
        if len(bounds) > 1:
            self._arrange()
            self.fields = self._sorted
        return bounds

    def _arrange(self) -> None:
        found, target, order, count = self._found, self._sorted, self._order, self.count
        arrange_long(found.timestamp, order, count, target.timestamp)
        for source, sorted_source in (
            (found.key_start, target.key_start),
            (found.key_length, target.key_length),
            (found.value_start, target.value_start),
            (found.value_length, target.value_length),
            (found.headers_start, target.headers_start),
            (found.headers_end, target.headers_end),
        ):
            arrange(source, order, count, sorted_source)


def size_beyond_reach(columns: RowColumns, row: int) -> int | None:
    """How large a row is that no block can hold, however short; None if one can."""
    size_bytes = max(_size_of_rows(columns, row, 1))
    return size_bytes if size_bytes > _BYTES_MAX else None


def _size_of_rows(columns: RowColumns, first: int, count: int) -> Iterator[int]:
    """How many bytes these rows take at most in each of the columns."""
    for column in (columns.key, columns.value):
        if column is not None:
            row = column.first + first
            yield column.numbers[row + count] - column.numbers[row]
    yield 0 if columns.headers is None else _size_of_headers(columns.headers, first, count)


def _size_of_headers(headers: Headers, first: int, count: int) -> int:
    """How many bytes the headers of these rows take at most."""
    lists, keys, values = headers
    row = lists.first + first
    header, last = lists.numbers[row], lists.numbers[row + count]
    key_bytes = keys.numbers[keys.first + last] - keys.numbers[keys.first + header] if last > header else 0
    value_bytes = values.numbers[values.first + last] - values.numbers[values.first + header] if last > header else 0
    return key_bytes + value_bytes + _HEADERS_OVERHEAD_MAX * count + _HEADER_OVERHEAD_MAX * (last - header)
