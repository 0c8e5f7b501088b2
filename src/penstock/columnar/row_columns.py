"""Rows that are to be written, as the loops want them: each column checked, and brought to one type.

`value` and `key` become byte strings with 64-bit offsets, `headers` a list of pairs, `partition` 32-bit numbers and
`timestamp` milliseconds, most of them without copying anything but offsets. What cannot be brought there is an error
that names the column and says what it may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.columnar._columns import TIMESTAMP_MS_MAX
from penstock.columnar.errors import ColumnarError
from penstock.wire.batch import NO_TIMESTAMP

NAMES = ("key", "value", "headers", "partition", "timestamp")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_NOTHING = memoryview(b"")
_BYTES = "binary or string"
_HEADERS = "list<struct<key: string, value: binary>>"
_PARTITION = "a whole number of at most 32 bits"
_TIMESTAMP = "a timestamp (of any unit and zone)"


class Memory(NamedTuple):
    """The buffers of a column: offsets or numbers, bytes, validity; and the index of its first row in them."""

    first: int
    numbers: memoryview
    data: memoryview
    validity: memoryview

    @classmethod
    def of(cls, column: pa.Array) -> Memory:
        """Of a column of byte strings, lists (without what is in them) or whole numbers."""
        buffers = column.buffers()
        is_wide = column.type in (pa.large_binary(), pa.int64())
        numbers = _view(buffers[1]).cast("q" if is_wide else "i")
        has_data = column.type in (pa.large_binary(), pa.binary(), pa.string())
        data = _view(buffers[2]) if has_data else _NOTHING
        return cls(column.offset, numbers, data, _view(buffers[0]) if column.null_count else _NOTHING)


class Headers(NamedTuple):
    """Which headers belong to which row, and the keys and values of all headers."""

    lists: Memory
    keys: Memory
    values: Memory


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of some rows; those that are not there, or are null in every row, are None."""

    count: int
    key: Memory | None
    value: Memory | None
    headers: Headers | None
    partition: Memory | None
    timestamp: Memory | None

    @classmethod
    def of(cls, topic: str, rows: pa.RecordBatch, now_ms: int) -> RowColumns:
        """The columns by their names. ColumnarError if one is missing, unknown, or has a type that cannot be."""
        _check_names(topic, rows.schema.names)
        found = {name: rows.column(name) for name in rows.schema.names}
        return cls(
            rows.num_rows,
            _byte_strings(topic, "key", found.get("key")),
            _byte_strings(topic, "value", found.get("value")),
            _headers(topic, found.get("headers")),
            _partitions(topic, found.get("partition")),
            _milliseconds(topic, found.get("timestamp"), now_ms),
        )


def _check_names(topic: str, names: list[str]) -> None:
    for name in names:
        if name not in NAMES:
            raise ColumnarError(f"topic {topic}: there is no column {name!r} to write; there are {', '.join(NAMES)}")
        if names.count(name) > 1:
            raise ColumnarError(f"topic {topic}: there are several columns {name!r}")
    if "value" not in names:
        raise ColumnarError(f"topic {topic}: the column 'value' is missing")


def _byte_strings(topic: str, name: str, column: pa.Array | None) -> Memory | None:
    if column is None or column.null_count == len(column):
        return None
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_kind(kind) for is_kind in _BYTE_KINDS):
        raise _wrong(topic, name, column.type, _BYTES)
    return Memory.of(_cast(topic, name, column, pa.large_binary(), _BYTES))


_BYTE_KINDS = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
    pa.types.is_string_view,
)


def _headers(topic: str, column: pa.Array | None) -> Headers | None:
    if column is None or column.null_count == len(column):
        return None
    kind = column.type
    if pa.types.is_map(kind):
        names = ["key", "value"]
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type):
        names = sorted(field.name for field in kind.value_type)
    else:
        names = []
    if names != ["key", "value"]:
        raise _wrong(topic, "headers", kind, _HEADERS)
    lists = _cast(topic, "headers", column, HEADERS, _HEADERS)
    keys, values = lists.values.flatten()  # a pair that is null becomes a key that is null
    return Headers(Memory.of(lists), Memory.of(keys), Memory.of(values))


def _partitions(topic: str, column: pa.Array | None) -> Memory | None:
    if column is None or column.null_count == len(column):
        return None
    if not pa.types.is_integer(column.type):
        raise _wrong(topic, "partition", column.type, _PARTITION)
    return Memory.of(_cast(topic, "partition", column, pa.int32(), _PARTITION))


def _milliseconds(topic: str, column: pa.Array | None, now_ms: int) -> Memory | None:
    """Rows without a time get the present one."""
    if column is None or column.null_count == len(column):
        return None
    if not pa.types.is_timestamp(column.type):
        raise _wrong(topic, "timestamp", column.type, _TIMESTAMP)
    is_finer = column.type.unit in ("us", "ns")  # the rest of a millisecond is lost, which is not an error
    times = _cast(topic, "timestamp", column, pa.timestamp("ms", column.type.tz), _TIMESTAMP, safe=not is_finer)
    times = times.cast(pa.int64())
    if times.null_count:
        times = times.fill_null(now_ms)
    bounds = pc.min_max(times).as_py()
    if bounds["min"] < NO_TIMESTAMP or bounds["max"] > TIMESTAMP_MS_MAX:
        raise ColumnarError(f"topic {topic}: the column 'timestamp' has a time before 1970 or after the year 294246")
    return Memory.of(times)


def _cast(topic: str, name: str, column: pa.Array, to: pa.DataType, wanted: str, *, safe: bool = True) -> pa.Array:
    try:
        return column.cast(to, safe=safe)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ColumnarError(f"topic {topic}: the column {name!r} must be {wanted}: {error}") from None


def _wrong(topic: str, name: str, found: pa.DataType, wanted: str) -> ColumnarError:
    return ColumnarError(f"topic {topic}: the column {name!r} must be {wanted}, not {found}")


def _view(buffer: pa.Buffer | None) -> memoryview:
    return _NOTHING if buffer is None else memoryview(buffer).cast("B")
