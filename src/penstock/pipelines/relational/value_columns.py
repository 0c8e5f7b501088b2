"""Values as drivers give them, or as text, to the columns of Arrow that Spark takes.

What a value becomes is decided by the Spark type of its column alone. A value that does not fit (a decimal number with
more digits than the type has, a text in a column of numbers, which SQLite allows) is an error that names the column: it
is never rounded, cut off or made null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.pipelines.relational.failures import RelationalError

VALUE_SHOWN_MAX = 80
Convert = Callable[[Any], Any]


def record_batch(rows: Sequence[Sequence[Any]], schema: StructType) -> pa.RecordBatch:
    """Rows of a driver as Arrow; RelationalError names the column that does not fit."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [column_array(column, field.dataType, field.name) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))


def arrow_schema(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def column_array(values: Iterable[Any], spark_type: DataType, name: str) -> pa.Array:
    convert = converter(spark_type)
    try:
        converted = [None if value is None else converted_value(convert, value, spark_type, name) for value in values]
        return pa.array(converted, to_arrow_type(spark_type, timezone="UTC"))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise RelationalError(
            f"column {name}: a value does not fit into {spark_type.simpleString()}: {error}"
        ) from None


def converted_value(convert: Convert, value: Any, spark_type: DataType, name: str) -> Any:
    try:
        return convert(value)
    except (ValueError, TypeError, InvalidOperation, OverflowError):
        shown = repr(value)
        raise RelationalError(
            f"column {name}: {shown[:VALUE_SHOWN_MAX]} is no {spark_type.simpleString()}; if the type of the column "
            "changed, start the query again; otherwise read the table through a view that casts the column"
        ) from None


def converter(spark_type: DataType) -> Convert:
    """From a driver's value, or text, to what Arrow takes for this type."""
    if isinstance(spark_type, ArrayType):
        inner = converter(spark_type.elementType)
        return lambda value: [None if each is None else inner(each) for each in _list(value)]
    if isinstance(spark_type, DecimalType):
        return lambda value: _decimal(value, spark_type)
    for kind, convert in _CONVERTERS:
        if isinstance(spark_type, kind):
            return convert
    raise RelationalError(f"the type {spark_type.simpleString()} cannot be read from a table")


def _list(value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    raise TypeError


def _decimal(value: Any, spark_type: DecimalType) -> Decimal:
    number = value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else str(value))
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):  # not a number, or infinite
        raise ValueError
    if -exponent > spark_type.scale and number != round(number, spark_type.scale):
        raise ValueError
    return round(number, spark_type.scale)


def _boolean(value: Any) -> bool:
    if isinstance(value, bytes):
        return any(value)
    if isinstance(value, str):
        if value.lower() not in ("t", "true", "1", "f", "false", "0"):
            raise ValueError
        return value.lower() in ("t", "true", "1")
    return bool(int(value))


def _whole(value: Any) -> int:
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    if isinstance(value, float | Decimal) and value != int(value):
        raise ValueError
    return int(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, timedelta):
        return _time_text(value)
    return str(value)


def _time_text(value: timedelta) -> str:
    """As MySQL writes a TIME, which goes beyond a day and below zero."""
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(value.days * 86400 + value.seconds, 60)
    part = f".{value.microseconds:06}" if value.microseconds else ""
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{part}"


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date) else date.fromisoformat(value)


def as_moment(value: Any) -> datetime:
    """A time without a zone is UTC; a number is seconds since 1970, as some keep times in SQLite."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC)
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def as_local(value: Any) -> datetime:
    """The same, as a time without a zone."""
    return as_moment(value).replace(tzinfo=None)


_CONVERTERS: tuple[tuple[type[DataType], Convert], ...] = (
    (BooleanType, _boolean),
    (IntegralType, _whole),
    (FloatType, float),
    (DoubleType, float),
    (StringType, _text),
    (BinaryType, _bytes),
    (DateType, _date),
    (TimestampType, as_moment),
    (TimestampNTZType, as_local),
)
