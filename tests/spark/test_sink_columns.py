"""Columns of a write: which schemas can be written, and rows sorted out by topic."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.spark.sink_columns import ARROW_TYPES, ColumnError, by_topic, check_schema

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns])


@pytest.mark.parametrize("kind", [StringType(), BinaryType()])
def test_a_value_is_enough(kind: DataType) -> None:
    check_schema(schema(("value", kind)), "orders")


def test_all_columns_and_others() -> None:
    every = schema(
        ("value", StringType()),
        ("key", BinaryType()),
        ("topic", StringType()),
        ("partition", IntegerType()),
        ("headers", HEADERS),
        ("timestamp", TimestampType()),
        ("others_are_left_out", LongType()),
    )
    check_schema(every, None)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ((("key", StringType()),), "no column value, which is what is written; the columns are key"),
        ((), "the columns are none"),
        ((("Value", StringType()),), "the columns are Value"),
        ((("value", LongType()),), "column value has the type bigint; it can be written as string or binary"),
        ((("value", StringType()), ("key", LongType())), "column key has the type bigint"),
        ((("value", StringType()), ("topic", BinaryType())), "column topic has the type binary"),
        ((("value", StringType()), ("partition", LongType())), "column partition has the type bigint"),
        ((("value", StringType()), ("timestamp", LongType())), "column timestamp has the type bigint"),
        ((("value", StringType()), ("timestamp", TimestampNTZType())), "column timestamp has the type timestamp_ntz"),
        ((("value", StringType()), ("headers", StringType())), "array<struct<key:string,value:binary>>"),
        ((("value", StringType()), ("headers", ArrayType(StringType()))), "column headers has the type array<string>"),
        ((("value", StringType()), ("value", StringType())), "column value is there 2 times"),
    ],
)
def test_what_is_wrong_is_named(columns: tuple[tuple[str, DataType], ...], says: str) -> None:
    with pytest.raises(ColumnError) as refused:
        check_schema(schema(*columns), "orders")
    assert says in str(refused.value)


def test_without_a_topic() -> None:
    with pytest.raises(ColumnError, match="set the option topic, or have a column topic"):
        check_schema(schema(("value", StringType())), None)


def test_one_form_for_all() -> None:
    when = datetime(2024, 2, 29, 12, tzinfo=UTC)
    rows = pa.record_batch(
        {
            "value": pa.array(["a"], pa.large_string()),
            "key": pa.array([b"k"], pa.large_binary()),
            "headers": pa.array([[{"key": "h", "value": b"v"}]]),
            "partition": pa.array([3], pa.int32()),
            "timestamp": pa.array([when], pa.timestamp("us", "Europe/Berlin")),
            "other": pa.array([1]),
        }
    )
    ((topic, written),) = by_topic(rows, "orders")
    assert topic == "orders"
    assert {field.name: field.type for field in written.schema} == ARROW_TYPES
    assert written.to_pylist() == [
        {"value": b"a", "key": b"k", "headers": [{"key": "h", "value": b"v"}], "partition": 3, "timestamp": when}
    ]


def test_the_option_wins_over_the_column() -> None:
    rows = pa.record_batch({"value": [b"a", b"b"], "topic": ["one", None]})
    assert [(topic, part.num_rows) for topic, part in by_topic(rows, "orders")] == [("orders", 2)]


def test_a_row_without_a_topic() -> None:
    rows = pa.record_batch({"value": [b"a", b"b"], "topic": ["one", None]})
    with pytest.raises(ColumnError, match="1 of 2 rows have no topic: their column topic is null"):
        list(by_topic(rows, None))


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1))
def test_rows_keep_their_order_in_each_topic(topics: list[str]) -> None:
    numbers = [str(number).encode() for number in range(len(topics))]
    rows = pa.record_batch({"value": numbers, "topic": topics})
    found = {topic: part.column("value").to_pylist() for topic, part in by_topic(rows, None)}
    assert found == {
        topic: [number for number, of in zip(numbers, topics, strict=True) if of == topic] for topic in set(topics)
    }


def test_rows_of_a_slice() -> None:
    rows = pa.record_batch({"value": [b"a", b"b", b"c", b"d"], "topic": ["x", "y", "x", "y"]}).slice(1)
    assert {topic: part.column("value").to_pylist() for topic, part in by_topic(rows, None)} == {
        "x": [b"c"],
        "y": [b"b", b"d"],
    }
