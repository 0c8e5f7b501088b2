"""Filters that choose what is fetched, against a model that looks at every record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock.base.identifiers import TopicPartition
from penstock.spark.planning import Range
from penstock.spark.pushdown import Wanted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARING = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
TOPICS = ["a", "ab", "b"]
RECORDS = [
    {"topic": topic, "partition": partition, "offset": offset, "timestamp": EPOCH + timedelta(milliseconds=time_ms)}
    for topic in TOPICS
    for partition in range(2)
    for offset, time_ms in enumerate([5, 3, 9, 7, 7, 20])
]

VALUES = {
    "topic": st.sampled_from([*TOPICS, "", "c", None]),
    "partition": st.one_of(st.none(), st.integers(-1, 3)),
    "offset": st.one_of(st.none(), st.integers(-2, 8)),
    "timestamp": st.one_of(st.none(), st.integers(0, 25_000).map(lambda us: EPOCH + timedelta(microseconds=us))),
}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    path, values = (column,), VALUES[column]
    kind = draw(st.sampled_from(["compare", "in", "null", "text"]))
    if kind == "compare":
        made: Filter = draw(st.sampled_from(COMPARING))(path, draw(values))
    elif kind == "in":
        made = In(path, tuple(draw(st.lists(values, max_size=3))))
    elif kind == "null":
        made = draw(st.sampled_from([IsNull, IsNotNull]))(path)
    else:
        made = draw(st.sampled_from([StringStartsWith, StringEndsWith, StringContains]))(
            ("topic",), draw(st.sampled_from(["", "a", "b"]))
        )
    return Not(made) if draw(st.booleans()) else made


def says(each: Filter, record: dict[str, object]) -> bool | None:
    """What SQL says of a record: true, false or null."""
    if isinstance(each, Not):
        inner = says(each.child, record)
        return None if inner is None else not inner
    have = record[each.attribute[0]]  # type: ignore[attr-defined]
    value = getattr(each, "value", None)
    if isinstance(each, IsNull | IsNotNull):
        return isinstance(each, IsNotNull)
    if isinstance(each, EqualNullSafe):
        return have == value
    if isinstance(each, In):
        return True if have in value else (None if None in value else False)
    if value is None:
        return None
    operations = {
        EqualTo: lambda: have == value,
        GreaterThan: lambda: have > value,
        GreaterThanOrEqual: lambda: have >= value,
        LessThan: lambda: have < value,
        LessThanOrEqual: lambda: have <= value,
        StringStartsWith: lambda: have.startswith(value),
        StringEndsWith: lambda: have.endswith(value),
        StringContains: lambda: value in have,
    }
    return operations[type(each)]()


def fetched(wanted: Wanted) -> list[dict[str, object]]:
    """The records that a read fetches: those of the range, from the first that is not older than the time."""
    rows = []
    for topic in TOPICS:
        for partition in range(2):
            where = TopicPartition(topic, partition)
            records = [each for each in RECORDS if (each["topic"], each["partition"]) == where]
            piece = wanted.narrowed(Range(where, 0, len(records)))
            if not wanted.has(where):
                continue
            start = piece.start
            if wanted.time_ms is not None:
                limit = EPOCH + timedelta(milliseconds=wanted.time_ms)
                start = max(
                    start, next((n for n, each in enumerate(records) if each["timestamp"] >= limit), len(records))
                )
            rows += records[start : piece.end]
    return rows


@given(st.lists(filters(), max_size=4))
def test_no_row_is_missing_and_what_is_kept_is_kept_exactly(given_filters: list[Filter]) -> None:
    wanted = Wanted()
    left = wanted.take(given_filters)
    assert all(any(each is one for one in given_filters) for each in left)
    expected = [each for each in RECORDS if all(says(one, each) is True for one in given_filters)]
    after_spark = [each for each in fetched(wanted) if all(says(one, each) is True for one in left)]
    assert after_spark == expected


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("topic",), "a"),
        Not(In(("topic",), ("a", "b"))),
        StringStartsWith(("topic",), "a"),
        LessThan(("partition",), 1),
        GreaterThan(("offset",), 5),
        EqualTo(("offset",), 5),
        IsNotNull(("timestamp",)),
        IsNotNull(("offset",)),
    ],
)
def test_spark_need_not_look_at_these_again(each: Filter) -> None:
    assert Wanted().take([each]) == []


@pytest.mark.parametrize(
    "each",
    [
        GreaterThan(("timestamp",), EPOCH),
        EqualTo(("key",), b"x"),
        IsNotNull(("key",)),
        Not(EqualTo(("offset",), 5)),
        In(("offset",), (1, 7)),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("topic", "x"), "x"),
    ],
)
def test_spark_looks_at_these_itself(each: Filter) -> None:
    assert Wanted().take([each]) == [each]


def test_a_lower_limit_for_the_time_is_a_place_to_begin() -> None:
    wanted = Wanted()
    wanted.take([GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(microseconds=7_500))])
    assert wanted.time_ms == 7
    wanted.take([LessThan(("timestamp",), EPOCH + timedelta(milliseconds=2))])
    assert wanted.time_ms == 7
    wanted.take([In(("timestamp",), (EPOCH + timedelta(milliseconds=9), EPOCH + timedelta(milliseconds=12)))])
    assert wanted.time_ms == 9


def test_without_filters_everything_is_wanted() -> None:
    wanted = Wanted()
    assert wanted.has(TopicPartition("x", 7))
    assert wanted.narrowed(Range(TopicPartition("x", 7), 3, 9)) == Range(TopicPartition("x", 7), 3, 9)
