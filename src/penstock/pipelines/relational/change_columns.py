"""The columns of change capture, and changes as rows of them.

op            read (the first snapshot), insert, update, delete, truncate
key           the primary key of the row, as a struct (of the old row, for a delete)
before        the row as it was: all of it with replica identity full, otherwise its key, or null
after         the row as it is now; null for a delete
deleted       op = 'delete', for sinks that delete
unchanged     columns of `after` that are null only because a large value was not touched and is not in the log
lsn           where the commit is in the write-ahead log; with `sequence` it orders all changes
sequence      counts the changes of a transaction
xid           the transaction
committed_at  when it was committed (for read: when the snapshot was taken)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.pipelines.relational.address import TableAddress
from penstock.pipelines.relational.change_rows import DELETE, Change, NamedValues
from penstock.pipelines.relational.dialect import TableShape
from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.value_columns import Convert, arrow_schema, converted_value, converter

_HEX = "\\x"


def change_schema(address: TableAddress, shape: TableShape) -> StructType:
    """RelationalError for a table without a primary key."""
    if not shape.primary_key:
        raise RelationalError(
            f"{address} has no primary key, by which changes are told apart: ALTER TABLE … ADD PRIMARY KEY (…)"
        )
    row = StructType([StructField(each.name, _as_text_or(each.spark_type)) for each in shape.columns])
    key = StructType([row[name] for name in shape.primary_key])
    return StructType(
        [
            StructField("op", StringType(), False),
            StructField("key", key),
            StructField("before", row),
            StructField("after", row),
            StructField("deleted", BooleanType(), False),
            StructField("unchanged", ArrayType(StringType())),
            StructField("lsn", LongType(), False),
            StructField("sequence", LongType(), False),
            StructField("xid", LongType()),
            StructField("committed_at", TimestampType(), False),
        ]
    )


def _as_text_or(spark_type: DataType) -> DataType:
    """Arrays stay as PostgreSQL writes them: {1,2}."""
    return StringType() if isinstance(spark_type, ArrayType) else spark_type


def row_type(schema: StructType) -> StructType:
    found = schema["after"].dataType
    assert isinstance(found, StructType)
    return found


def key_names(schema: StructType) -> tuple[str, ...]:
    found = schema["key"].dataType
    assert isinstance(found, StructType)
    return tuple(found.names)


class ChangeBatches:
    """Makes Arrow batches of changes whose values are text."""

    def __init__(self, schema: StructType) -> None:
        self._schema = arrow_schema(schema)
        self._types = {field.name: field.dataType for field in row_type(schema)}
        self._converters = {name: _from_text(each) for name, each in self._types.items()}
        self._key = key_names(schema)

    def batch(self, changes: Sequence[Change]) -> pa.RecordBatch:
        try:
            return pa.RecordBatch.from_pylist([self._row(each) for each in changes], schema=self._schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise RelationalError(
                f"a value does not fit into its column; if a type of the table changed, start the query again: {error}"
            ) from None

    def _row(self, change: Change) -> dict[str, Any]:
        return {
            "op": change.op,
            "key": self._values(change.key, self._key),
            "before": self._values(change.before, self._types),
            "after": self._values(change.after, self._types),
            "deleted": change.op == DELETE,
            "unchanged": list(change.unchanged) or None,
            "lsn": change.lsn,
            "sequence": change.sequence,
            "xid": change.xid,
            "committed_at": change.committed_at,
        }

    def _values(self, values: NamedValues | None, names: Sequence[str] | dict[str, DataType]) -> dict[str, Any] | None:
        """Columns that the row does not have are null; those it has and the schema does not are left out."""
        return None if values is None else {name: self._value(name, values.get(name)) for name in names}

    def _value(self, name: str, text: str | None) -> Any:
        return None if text is None else converted_value(self._converters[name], text, self._types[name], name)


def _from_text(spark_type: DataType) -> Convert:
    return _bytes_from_text if isinstance(spark_type, BinaryType) else converter(spark_type)


def _bytes_from_text(text: str) -> bytes:
    if not text.startswith(_HEX):
        raise ValueError
    return bytes.fromhex(text[len(_HEX) :])
