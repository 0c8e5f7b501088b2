"""Why a value cannot be read, in words; and Avro values, one by one."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructType, TimestampType

from penstock.pipelines.bad_records import csv_reason, json_reason
from penstock.pipelines.formats_avro import AvroSchemaError, ValueReader, avro_schema_of, avro_struct, parsed_schema

COLUMNS = (
    StructType()
    .add("id", LongType())
    .add("at", TimestampType())
    .add("n", StructType().add("x", ArrayType(IntegerType())))
)
AVRO = json.dumps(
    {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "sku", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "this is not JSON"),
        ("[1]", "an object is wanted, and this is a list"),
        ('{"id": "x"}', "id: bigint is wanted, and this is a text"),
        ('{"id": 1, "n": {"x": [1, "y"]}}', "n.x[1]: int is wanted, and this is a text"),
        ('{"id": 99999999999999999999}', "id: bigint is wanted"),
        ('{"at": "soon"}', "at: timestamp is wanted"),
        ("[" * 100_000, "this is not JSON"),
    ],
)
def test_json(text: str, reason: str) -> None:
    assert json_reason(text, COLUMNS).startswith(reason)


def test_csv() -> None:
    assert csv_reason("1,2", COLUMNS, ",") == "the line has 2 fields, and the schema 3"
    assert "type" in csv_reason("x,y,z", COLUMNS, ",")


def avro_value(**fields: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed_schema(AVRO), fields)
    return stream.getvalue()


def test_avro_values() -> None:
    value = avro_value(id=7, sku=None, at=1_700_000_000_000)
    fields, reason = ValueReader(AVRO, skips_header=False).read(value)
    assert reason is None and fields is not None and fields["id"] == 7
    assert ValueReader(AVRO, skips_header=True).read(b"\0\0\0\0\x05" + value)[1] is None
    for bad in (None, b"", value[:-1], value + b"!", b"\xff" * 40):
        assert ValueReader(AVRO, skips_header=False).read(bad)[1]
    assert "registry" in str(ValueReader(AVRO, skips_header=True).read(value + b"123")[1])


def test_avro_schemas() -> None:
    assert avro_struct(AVRO).simpleString() == "struct<id:bigint,sku:string,at:timestamp>"
    made = avro_schema_of(StructType().add("a", StringType()).add("b", StructType().add("c", LongType())))
    assert avro_struct(json.dumps(made)).simpleString() == "struct<a:string,b:struct<c:bigint>>"
    for wrong in (
        '"long"',
        "{}",
        '{"type": "record", "name": "r", "fields": [{"name": "u", "type": ["int", "string"]}]}',
    ):
        with pytest.raises(AvroSchemaError):
            avro_struct(wrong)
