"""Arrow columns as plain ones that every database takes: numbers, text and bytes.

Times become text in UTC, decimals their digits, arrays, maps and structs JSON. What a database cannot keep is an error
that names the column; it never becomes something else in silence.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipelines.relational.failures import RowsRefused


def plain_column(column: pa.Array, name: str) -> pa.Array:
    """The same values as booleans, numbers, text or bytes."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        utc = column.cast(pa.timestamp("us", kind.tz and "UTC"))
        return utc.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else _json(value, kind) for value in column.to_pylist()], pa.string())
    if pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_time(kind):
        raise RowsRefused(f"column {name!r} has intervals, which are not written; cast them to string")
    return column


def finite_column(column: pa.Array, name: str, *, infinite_too: bool) -> pa.Array:
    """RowsRefused for numbers that the database does not have."""
    if pa.types.is_floating(column.type):
        bad = pc.invert(pc.is_finite(column)) if infinite_too else pc.is_nan(column)
        if pc.any(bad).as_py():
            raise RowsRefused(f"column {name!r} has NaN or an infinite number, which this database does not have")
    return column


def as_hex(column: pa.Array) -> pa.Array:
    r"""Bytes in PostgreSQL's notation, `\x0aff`."""
    return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())


def as_array_literals(column: pa.Array) -> pa.Array:
    """Lists in the notation of PostgreSQL's arrays, `{1,NULL,"a b"}`."""
    return pa.array([None if value is None else _array_literal(value) for value in column.to_pylist()], pa.string())


def _array_literal(values: list[Any]) -> str:
    return "{" + ",".join(_element(value) for value in values) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return _array_literal(value)
    if isinstance(value, bytes):
        text = f"\\x{value.hex()}"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json(value: Any, kind: pa.DataType) -> str:
    return msgspec.json.encode(_jsonable(value, kind)).decode()


def _jsonable(value: Any, kind: pa.DataType) -> Any:
    """Arrow gives a map as a list of pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {str(key): _jsonable(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _jsonable(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_jsonable(item, kind.value_type) for item in value]
    return value
