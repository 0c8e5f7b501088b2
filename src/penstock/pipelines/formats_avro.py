"""Avro values: fastavro inside an Arrow function, since a plain PySpark has no Avro of its own.

A schema of Avro becomes a struct of Spark (`avro_struct`) and back (`avro_schema_of`, for sinks that name none). Values
are decoded one by one, so that one that does not fit becomes a reason and the rest of the batch is read.
"""

from __future__ import annotations

import io
import json
import struct as binary_struct
from collections.abc import Callable, Iterator
from datetime import time
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.pipelines.specification import Format

CONFLUENT_HEADER_BYTES = 5
CONFLUENT_MAGIC = 0
_PLAIN: dict[str, Callable[[], DataType]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "bytes": BinaryType,
    "string": StringType,
    "enum": StringType,
    "fixed": BinaryType,
}
_LOGICAL: dict[str, Callable[[], DataType]] = {
    "date": DateType,
    "timestamp-millis": TimestampType,
    "timestamp-micros": TimestampType,
    "time-millis": StringType,
    "time-micros": StringType,
    "uuid": StringType,
}
_TO_AVRO: dict[type[DataType], Any] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "bytes",
    StringType: "string",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
}


class AvroSchemaError(ValueError):
    """A schema that cannot be read, or that has no counterpart."""


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def parsed_schema(text: str) -> Any:
    """The schema as fastavro uses it. AvroSchemaError."""
    try:
        return fastavro.parse_schema(json.loads(text))
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AvroSchemaError(f"the Avro schema cannot be read: {error}") from None


def avro_struct(text: str) -> StructType:
    """The columns of a record. AvroSchemaError."""
    schema = parsed_schema(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise AvroSchemaError("the Avro schema of a value is a record, whose fields are the columns")
    kind = _spark_type(schema, {})
    assert isinstance(kind, StructType)
    return kind


def _spark_type(schema: Any, named: dict[str, Any]) -> DataType:
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise AvroSchemaError("a union of several types has no counterpart among columns; only null and one other")
        return _spark_type(others[0], named)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]()
        if schema not in named:
            raise AvroSchemaError(f"the Avro type {schema} refers to itself or is unknown")
        return _spark_type(named[schema], named)
    logical = schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
    if logical in _LOGICAL:
        return _LOGICAL[logical]()
    return _complex_type(schema, named)


def _complex_type(schema: dict[str, Any], named: dict[str, Any]) -> DataType:
    kind = schema["type"]
    if kind == "record":
        struct = StructType()
        for each in schema["fields"]:
            is_nullable = isinstance(each["type"], list) and "null" in each["type"]
            struct = struct.add(each["name"], _spark_type(each["type"], named), is_nullable)
        named[schema["name"]] = schema
        return struct
    if kind == "array":
        return ArrayType(_spark_type(schema["items"], named), isinstance(schema["items"], list))
    if kind == "map":
        return MapType(StringType(), _spark_type(schema["values"], named), isinstance(schema["values"], list))
    if kind in ("enum", "fixed"):
        named[schema["name"]] = schema
    return _spark_type(kind, named)


def avro_schema_of(struct: StructType, name: str = "row") -> dict[str, Any]:
    """An Avro schema for these columns, each of which may be null. AvroSchemaError."""
    fields = [
        {"name": field.name, "type": ["null", _avro_type(field.dataType, f"{name}_{field.name}")], "default": None}
        for field in struct.fields
    ]
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(kind: DataType, name: str) -> Any:
    if isinstance(kind, StructType):
        return avro_schema_of(kind, name)
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": ["null", _avro_type(kind.elementType, name)]}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return {"type": "map", "values": ["null", _avro_type(kind.valueType, name)]}
    if isinstance(kind, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if type(kind) not in _TO_AVRO:
        raise AvroSchemaError(
            f"a column of the type {kind.simpleString()} has no counterpart in Avro; cast it in a step"
        )
    return _TO_AVRO[type(kind)]


# ── from bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def avro_decoded(raw: DataFrame, format: Format) -> DataFrame:
    """Adds `_data` and `_reason`, see `formats`."""
    struct = avro_struct(format.schema or "")
    nullable = StructType([type(field)(field.name, field.dataType, True) for field in struct.fields])
    schema = StructType([*raw.schema.fields]).add("_data", nullable).add("_reason", StringType())
    text, skips_header = format.schema or "", format.skips_confluent_header

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ValueReader(text, skips_header)
        for batch in batches:
            yield _with_data(batch, reader)

    return raw.mapInArrow(decode, schema)


class ValueReader:
    """Reads values one by one."""

    def __init__(self, schema_text: str, skips_header: bool) -> None:
        self.schema = parsed_schema(schema_text)
        self.skips_header = skips_header
        self.kind = arrow_struct(avro_struct(schema_text))

    def read(self, value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        """The fields, or the reason why there are none."""
        if value is None:
            return None, "there is no value"
        if self.skips_header:
            if len(value) < CONFLUENT_HEADER_BYTES or value[0] != CONFLUENT_MAGIC:
                return None, "the value does not begin with a registry's five bytes (0 and the number of a schema)"
            value = value[CONFLUENT_HEADER_BYTES:]
        stream = io.BytesIO(value)
        try:
            fields = fastavro.schemaless_reader(stream, self.schema, None)
        except (EOFError, IndexError):
            return None, f"the value ends too early for the Avro schema ({len(value)} bytes)"
        except (ValueError, TypeError, KeyError, OverflowError, MemoryError, RecursionError, AttributeError) as error:
            return None, f"the value is not of the Avro schema: {error}"
        except (binary_struct.error, ArithmeticError, OSError) as error:
            return None, f"the value is not of the Avro schema: {error}"
        left = len(value) - stream.tell()
        if left:
            return None, f"{left} bytes are left after the value: it was written with another schema"
        return _plain(fields), None


def _plain(value: Any) -> Any:
    """What Arrow takes: identifiers and times of day as text."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, UUID | time) else value


def _with_data(batch: pa.RecordBatch, reader: ValueReader) -> pa.RecordBatch:
    read = [reader.read(value) for value in batch.column("value").to_pylist()]
    data, reasons = [each[0] for each in read], [each[1] for each in read]
    try:
        column = pa.array(data, reader.kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
        column = _one_by_one(data, reasons, reader.kind)
    columns = [*batch.columns, column, pa.array(reasons, pa.string())]
    return pa.record_batch(columns, names=[*batch.schema.names, "_data", "_reason"])


def _one_by_one(data: list[dict[str, Any] | None], reasons: list[str | None], kind: pa.DataType) -> pa.Array:
    """One of them cannot be held by its column; find out which."""
    for number, each in enumerate(data):
        try:
            pa.array([each], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as error:
            data[number], reasons[number] = None, f"the value does not fit its column: {error}"
    return pa.array(data, kind)


def arrow_struct(struct: StructType) -> pa.DataType:
    """The Arrow type of these columns, all of which may be null."""
    return pa.struct([pa.field(field.name, _arrow_type(field.dataType)) for field in struct.fields])


_ARROW: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    BinaryType: pa.binary(),
    StringType: pa.string(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, StructType):
        return arrow_struct(kind)
    if isinstance(kind, ArrayType):
        return pa.list_(_arrow_type(kind.elementType))
    if isinstance(kind, MapType):
        return pa.map_(pa.string(), _arrow_type(kind.valueType))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _ARROW[type(kind)]


# ── to bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def avro_encoded(rows: DataFrame, format: Format, columns: list[str]) -> DataFrame:
    """Adds `_value`: these columns as Avro, by the schema of the format, or one made of the columns."""
    struct = StructType([field for field in rows.schema.fields if field.name in columns])
    text = format.schema or json.dumps(avro_schema_of(struct))
    _check_fields(text, columns)
    schema = StructType([*rows.schema.fields]).add("_value", BinaryType())
    maps = [field.name for field in struct.fields if isinstance(field.dataType, MapType)]

    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parsed = parsed_schema(text)
        for batch in batches:
            values = [_bytes_of(row, parsed, maps) for row in batch.select(columns).to_pylist()]
            yield pa.record_batch(
                [*batch.columns, pa.array(values, pa.binary())], names=[*batch.schema.names, "_value"]
            )

    return rows.select(*(F.col(f"`{name}`") for name in rows.columns)).mapInArrow(encode, schema)


def _bytes_of(row: dict[str, Any], schema: Any, maps: list[str]) -> bytes:
    for name in maps:  # Arrow gives maps as lists of pairs
        row[name] = None if row[name] is None else dict(row[name])
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, row)
    return stream.getvalue()


def _check_fields(text: str, columns: list[str]) -> None:
    schema = parsed_schema(text)
    missing = [
        each["name"] for each in schema.get("fields", ()) if each["name"] not in columns and "default" not in each
    ]
    if missing:
        raise AvroSchemaError(
            f"the Avro schema has {', '.join(missing)}, and the rows do not; they have {', '.join(columns)}"
        )
