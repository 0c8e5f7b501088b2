"""The buffers of one Arrow batch that is being filled with the rows of records.

Arrow keeps a column of byte strings as the bytes one behind the other, 32-bit offsets into them, and one bit for each
row that is 0 where the row is null. Buffers come from Arrow's own memory pool, grow by doubling, and begin as large as
the last batch needed them, so that most batches are filled without moving anything. Columns that say the same in every
row (topic, partition) are made once and shared by all batches.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from penstock.base.identifiers import TopicPartition
from penstock.base.world import Buffer
from penstock.columnar._columns import (
    gather,
    gather_headers,
    measure_headers,
    total_length,
)

_ITEMS_MIN = 64


@dataclass(slots=True)
class RowFields:
    """For each row its offset and time, and where its fields lie in an area. The length of a null is -1."""

    offset: memoryview
    timestamp: memoryview
    timestamp_type: memoryview
    offset_delta: memoryview
    key_start: memoryview
    key_length: memoryview
    value_start: memoryview
    value_length: memoryview
    headers_start: memoryview
    headers_end: memoryview

    @classmethod
    def allocate(cls, rows: int) -> RowFields:
        longs = (memoryview(array("q", bytes(8 * rows))) for _ in range(2))
        return cls(*longs, *(memoryview(array("i", bytes(4 * rows))) for _ in range(8)))

    def columns(self) -> tuple[memoryview, ...]:
        """In the order in which the loops take them."""
        return (
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.offset_delta,
            self.key_start,
            self.key_length,
            self.value_start,
            self.value_length,
            self.headers_start,
            self.headers_end,
        )


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

    def append(self, area: Buffer, start: memoryview, length: memoryview, first: int, last: int, row: int) -> None:
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

    def append(self, area: Buffer, fields: RowFields, first: int, last: int, row: int) -> None:
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

    def __init__(self, where: TopicPartition, schema: pa.Schema) -> None:
        self._schema = schema
        self._same = _Same(where)
        self._begin(0, 0, 0)

    def _begin(self, rows: int, key_bytes: int, value_bytes: int) -> None:
        names = self._schema.names
        self.count = 0
        self.size_bytes = 0
        self._keys = _Strings(rows, key_bytes) if "key" in names else None
        self._values = _Strings(rows, value_bytes) if "value" in names else None
        self._headers = _Headers(rows) if "headers" in names else None
        self._offsets = _Growing("q", rows)
        self._timestamps = _Growing("q", rows)
        self._timestamp_types = _Growing("i", rows)

    def append(self, area: Buffer, fields: RowFields, first: int, last: int) -> None:
        """Copy the chosen fields of some rows."""
        row, self.count = self.count, self.count + last - first
        for numbers, found in (
            (self._offsets, fields.offset),
            (self._timestamps, fields.timestamp),
            (self._timestamp_types, fields.timestamp_type),
        ):
            numbers.reserve(self.count)
            numbers.view[row : self.count] = found[first:last]
        self.size_bytes = 0
        if self._keys is not None:
            self._keys.append(area, fields.key_start, fields.key_length, first, last, row)
            self.size_bytes += self._keys.size_bytes(self.count)
        if self._values is not None:
            self._values.append(area, fields.value_start, fields.value_length, first, last, row)
            self.size_bytes += self._values.size_bytes(self.count)
        if self._headers is not None:
            self._headers.append(area, fields, first, last, row)
            self.size_bytes += self._headers.size_bytes(self.count)

    def finish(self) -> pa.RecordBatch:
        """The rows as an Arrow batch."""
        arrays = [self._column(field) for field in self._schema]
        sizes = [0 if strings is None else strings.size_bytes(self.count) for strings in (self._keys, self._values)]
        self._begin(self.count, *sizes)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field) -> pa.Array:
        if field.name in ("topic", "partition"):
            return self._same.column(field.name, self.count)
        of_objects = {"key": self._keys, "value": self._values, "headers": self._headers}.get(field.name)
        if of_objects is not None:
            return of_objects.finish(self.count, field.type)
        numbers = {"offset": self._offsets, "timestamp": self._timestamps, "timestampType": self._timestamp_types}
        buffer = numbers[field.name].finish(self.count)
        return pa.Array.from_buffers(field.type, self.count, [None, buffer], null_count=0)


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
