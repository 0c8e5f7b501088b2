"""The columns of a write: what a DataFrame must have, and its rows sorted out by topic.

The schema is checked on the driver before anything runs. Rows come as Arrow batches; nothing here looks at rows one by
one. A batch leaves in one form, whatever Spark was told to send (large strings, another time zone).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.columnar.errors import ColumnarError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: In what form columns are handed on.
ARROW_TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": HEADERS,
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


class ColumnError(ColumnarError):
    """A column that is missing, or has a type that cannot be written, or a null where there must be none."""


def check_schema(schema: StructType, topic: str | None) -> None:
    """ColumnError unless rows of this schema can be written (to that topic, or each to its own)."""
    for name, wanted in _WANTED.items():
        found = [field for field in schema.fields if field.name == name]
        if len(found) > 1:
            raise ColumnError(f"the column {name} is there {len(found)} times; leave one")
        if found and not _fits(name, found[0].dataType):
            raise ColumnError(
                f"the column {name} has the type {found[0].dataType.simpleString()}; it can be written as {wanted}"
            )
    names = [field.name for field in schema.fields]
    if "value" not in names:
        raise ColumnError(
            f"there is no column value, which is what is written; the columns are {', '.join(names) or 'none'}. "
            "Make one, for example with selectExpr('to_json(struct(*)) AS value')"
        )
    if topic is None and "topic" not in names:
        raise ColumnError("no topic: set the option topic, or have a column topic that names one in each row")


_WANTED = {
    "value": "string or binary",
    "key": "string or binary",
    "topic": "string",
    "partition": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
}


def _fits(name: str, kind: DataType) -> bool:
    if name in ("value", "key"):
        return isinstance(kind, StringType | BinaryType)
    if name == "headers":
        return _is_headers(kind)
    return isinstance(kind, {"topic": StringType, "partition": IntegerType, "timestamp": TimestampType}[name])


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order; all belong to the given one if there is one."""
    columns = _columns(rows)
    if topic is not None:
        yield topic, columns
        return
    topics = rows.column("topic")
    if topics.null_count:
        raise ColumnError(
            f"{topics.null_count} of {rows.num_rows} rows have no topic: their column topic is null. "
            "Fill it, drop those rows, or set the option topic"
        )
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], columns
        return
    grouped = columns.take(pc.array_sort_indices(encoded.indices))  # a stable sort
    start = 0
    for entry in sorted(encoded.indices.value_counts().to_pylist(), key=lambda each: each["values"]):
        yield names[entry["values"]], grouped.slice(start, entry["counts"])
        start += entry["counts"]


def _columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """What is written of rows, in one form."""
    names = [name for name in ARROW_TYPES if name in rows.schema.names]
    arrays = [_in_form(rows.column(name), ARROW_TYPES[name]) for name in names]
    return pa.record_batch(arrays, names=names)


def _in_form(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)
