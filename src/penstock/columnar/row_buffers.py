"""The buffers of one Arrow batch that is being filled with the rows of records.

Arrow keeps a column of byte strings as the bytes one behind the other, 32-bit offsets into them, and one bit for each
row that is 0 where the row is null. Buffers come from Arrow's own memory pool, grow by doubling, and begin as large as
the last batch needed them, so that most batches are filled without moving anything. Columns that say the same in every
row (topic, partition) are made once and shared by all batches.
"""

from __future__ import annotations

import struct
from array import array
from typing import Literal

import pyarrow as pa

from penstock.base.identifiers import TopicPartition
from penstock.base.world import Buffer
from penstock.columnar._columns import (
    gather,
    gather_headers,
    gather_offsets,
    gather_timestamps,
    measure_headers,
    total_length,
)
from penstock.wire.batch import LOG_APPEND_TIME, BatchHeader
from penstock.wire.records import RecordColumns

_ITEMS_MIN = 64


class _Growing:
    """Writable memory of Arrow's for numbers of one format, as `array` names them."""

    __slots__ = ("_buffer", "_format", "_item_size", "view")

    def __init__(self, format: Literal["B", "i", "q"], items: int) -> None:
        self._format = format
        self._item_size = array(format).itemsize
        self._buffer = pa.allocate_buffer(max(items, _ITEMS_MIN) * self._item_size, resizable=True)
        self.view = self._view()

    def reserve(self, items: int) -> None:
        room = len(self.view)
        if items > room:
            self.view.release()  # it would point to where the memory was
            self._buffer.resize(max(items, 2 * room) * self._item_size)
            self.view = self._view()

    def finish(self, items: int) -> pa.Buffer:
        return self._buffer.slice(0, items * self._item_size)

    def _view(self) -> memoryview:
        view = memoryview(self._buffer).cast("B")
        return view if self._format == "B" else view.cast(self._format)


class _Bitmap(_Growing):
    """One bit for each row, set until a null clears it."""

    __slots__ = ()

    def __init__(self, rows: int) -> None:
        super().__init__("B", rows // 8 + 1)
        self.view[:] = b"\xff" * len(self.view)

    def reserve(self, rows: int) -> None:
        room = len(self.view)
        super().reserve(rows // 8 + 1)
        if len(self.view) > room:
            self.view[room:] = b"\xff" * (len(self.view) - room)


class _Strings:
    """A column of byte strings: offsets, bytes, and which rows are not null."""

    __slots__ = ("data", "offsets", "validity")

    def __init__(self, rows: int, size_bytes: int) -> None:
        self.offsets = _Growing("i", rows + 1)
        self.offsets.view[0] = 0
        self.data = _Growing("B", size_bytes)
        self.validity = _Bitmap(rows)

    def size_bytes(self, rows: int) -> int:
        return self.offsets.view[rows]

    def reserve(self, rows: int, size_bytes: int) -> None:
        self.offsets.reserve(rows + 1)
        self.data.reserve(size_bytes)
        self.validity.reserve(rows)

    def append(self, area: Buffer, start: array[int], length: array[int], first: int, last: int, row: int) -> None:
        self.reserve(row + last - first, self.size_bytes(row) + total_length(length, first, last))
        gather(area, start, length, first, last, row, self.offsets.view, self.data.view, self.validity.view)

    def finish(self, rows: int, type: pa.DataType) -> pa.Array:
        parts = [self.validity.finish(rows // 8 + 1), self.offsets.finish(rows + 1)]
        return pa.Array.from_buffers(type, rows, [*parts, self.data.finish(self.size_bytes(rows))])


class _Headers:
    """The headers of all rows one behind the other, and which of them belong to which row."""

    __slots__ = ("_found", "_keys", "_offsets", "_validity", "_values")

    def __init__(self, rows: int) -> None:
        self._offsets = _Growing("i", rows + 1)
        self._offsets.view[0] = 0
        self._validity = _Bitmap(rows)
        self._keys = _Strings(0, 0)
        self._values = _Strings(0, 0)
        self._found = array("q", (0, 0))

    def size_bytes(self, rows: int) -> int:
        headers = self._offsets.view[rows]
        return self._keys.size_bytes(headers) + self._values.size_bytes(headers)

    def append(self, area: Buffer, fields: RecordColumns, first: int, last: int, row: int) -> None:
        measure_headers(area, fields.headers_start, fields.headers_end, first, last, self._found)
        more, more_bytes = self._found
        headers = self._offsets.view[row]
        self._offsets.reserve(row + last - first + 1)
        self._validity.reserve(row + last - first)
        for strings in (self._keys, self._values):
            strings.reserve(headers + more, strings.size_bytes(headers) + more_bytes)
        gather_headers(
            area,
            fields.headers_start,
            fields.headers_end,
            first,
            last,
            row,
            self._offsets.view,
            self._validity.view,
            self._keys.offsets.view,
            self._keys.data.view,
            self._values.offsets.view,
            self._values.data.view,
            self._values.validity.view,
        )

    def finish(self, rows: int, type: pa.ListType) -> pa.Array:
        headers = self._offsets.view[rows]
        keys = _as_text(self._keys.finish(headers, pa.binary()))
        pairs = pa.StructArray.from_arrays(
            [keys, self._values.finish(headers, pa.binary())], fields=list(type.value_type)
        )
        buffers = [self._validity.finish(rows // 8 + 1), self._offsets.finish(rows + 1)]
        return pa.Array.from_buffers(type, rows, buffers, children=[pairs])


def _as_text(names: pa.Array) -> pa.Array:
    """The names of headers should be UTF-8; what is not is replaced, as the Java client does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([str(name, "utf-8", "replace") for name in names.to_pylist()], pa.string())


class RowBuffers:
    """The rows of one Arrow batch at a time: append records, then finish it and begin the next."""

    def __init__(self, where: TopicPartition, schema: pa.Schema, *, rows_max: int) -> None:
        self._where = where
        self._schema = schema
        self._rows_max = rows_max
        self._same = _Same(where)
        self._rows_hint = 0
        self._bytes_hints = {"key": 0, "value": 0}
        self._begin()

    def _begin(self) -> None:
        rows = self._rows_hint
        self.count = 0
        self.size_bytes = 0
        names = self._schema.names
        self._strings = {name: _Strings(rows, size) for name, size in self._bytes_hints.items() if name in names}
        self._headers = _Headers(rows) if "headers" in names else None
        self._offsets = _Growing("q", rows)
        self._timestamps = _Growing("q", rows)
        self._timestamp_types = _Growing("i", rows)

    def append(self, area: Buffer, fields: RecordColumns, header: BatchHeader, first: int, last: int) -> None:
        """Copy the chosen fields of some records of a batch."""
        row, count = self.count, last - first
        for name, strings in self._strings.items():
            start, length = (
                (fields.key_start, fields.key_length) if name == "key" else (fields.value_start, fields.value_length)
            )
            strings.append(area, start, length, first, last, row)
        if self._headers is not None:
            self._headers.append(area, fields, first, last, row)
        for numbers in (self._offsets, self._timestamps, self._timestamp_types):
            numbers.reserve(row + count)
        gather_offsets(fields.offset_delta, header.base_offset, first, last, row, self._offsets.view)
        self._append_times(fields, header, first, last)
        self.count = row + count
        self.size_bytes = sum(strings.size_bytes(self.count) for strings in self._strings.values())
        if self._headers is not None:
            self.size_bytes += self._headers.size_bytes(self.count)

    def _append_times(self, fields: RecordColumns, header: BatchHeader, first: int, last: int) -> None:
        row, count = self.count, last - first
        is_of_log = bool(header.attributes & LOG_APPEND_TIME)
        if is_of_log:
            self._timestamps.view[row : row + count] = array("q", [header.max_timestamp * 1000]) * count
        else:
            gather_timestamps(fields.timestamp_delta, header.base_timestamp, first, last, row, self._timestamps.view)
        self._timestamp_types.view[row : row + count] = array("i", [is_of_log]) * count

    def finish(self) -> pa.RecordBatch:
        """The rows as an Arrow batch."""
        count = self.count
        arrays = [self._column(field) for field in self._schema]
        self._rows_hint = count
        self._bytes_hints |= {name: strings.size_bytes(count) for name, strings in self._strings.items()}
        self._begin()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field) -> pa.Array:
        count = self.count
        if field.name in self._strings:
            return self._strings[field.name].finish(count, field.type)
        if field.name == "headers" and self._headers is not None:
            return self._headers.finish(count, field.type)
        if field.name in ("topic", "partition"):
            return self._same.column(field.name, count)
        numbers = {"offset": self._offsets, "timestamp": self._timestamps, "timestampType": self._timestamp_types}
        return pa.Array.from_buffers(field.type, count, [None, numbers[field.name].finish(count)], null_count=0)


class _Same:
    """Columns whose rows are all the same: made once, for as many rows as were ever needed, and shared."""

    def __init__(self, where: TopicPartition) -> None:
        self._scalars = {"topic": _text_scalar(where.topic), "partition": _int32_scalar(where.partition)}
        self._columns = {name: pa.repeat(scalar, 0) for name, scalar in self._scalars.items()}

    def column(self, name: str, rows: int) -> pa.Array:
        if len(self._columns[name]) < rows:
            self._columns[name] = pa.repeat(self._scalars[name], rows)
        return self._columns[name].slice(0, rows)


def _text_scalar(text: str) -> pa.Scalar:
    """Not with pa.scalar: that imports pandas, which takes longer than a small read."""
    data = text.encode()
    buffers = [None, pa.py_buffer(struct.pack("=ii", 0, len(data))), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), 1, buffers)[0]


def _int32_scalar(number: int) -> pa.Scalar:
    return pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(struct.pack("=i", number))])[0]
