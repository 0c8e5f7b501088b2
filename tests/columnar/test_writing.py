"""Rows of every kind, in one call; and what is said of rows that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock.columnar import read
from penstock.columnar.errors import ColumnarError, SettingError, TopicGone
from penstock.columnar.writing import Written, arranged, batches_of, write

from .producing_sites import ProducingSite, numbered, texts

NAMES: dict[str, str | None] = dict.fromkeys(("key", "value", "headers", "partition", "timestamp"))
TABLE = pa.table({"id": ["a", "b", None], "payload": [b"1", None, b"3"]})


def as_rows(rows: Any, **names: str) -> list[dict[str, Any]]:
    return [row for batch in batches_of(rows) for row in arranged(batch, {**NAMES, **names}).to_pylist()]


def test_every_kind_of_rows() -> None:
    expected = [{"key": b"a", "value": b"1"}, {"key": b"b", "value": None}, {"key": None, "value": b"3"}]
    batch = TABLE.to_batches()[0]
    kinds = {
        "table": TABLE,
        "batch": batch,
        "reader": TABLE.to_reader(),
        "iterable": iter([batch.slice(0, 1), batch.slice(1)]),
        "tables": [TABLE.slice(0, 2), TABLE.slice(2)],
        "polars": pl.from_arrow(TABLE),
        "pandas": TABLE.to_pandas(),
        "duckdb": duckdb.from_arrow(TABLE),
    }
    for kind, rows in kinds.items():
        assert as_rows(rows, key="id", value="payload") == expected, kind


def test_columns_are_found_by_their_names() -> None:
    rows = pa.table({"value": ["v"], "key": ["k"], "timestamp": [1], "partition": [0], "more": [1]})
    assert as_rows(rows) == [{"key": b"k", "value": b"v"}]
    assert as_rows(rows, partition="partition", timestamp="timestamp") == [
        {"key": b"k", "value": b"v", "partition": 0, "timestamp": 1}
    ]
    assert as_rows(pa.table({"line": ["only one"]})) == [{"value": b"only one"}]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x", None]),
        pa.array(["x", None], pa.large_string()),
        pa.array(["x", None], pa.string_view()),
        pa.array([b"x", None], pa.large_binary()),
        pa.array([b"x", None], pa.binary_view()),
        pa.array([b"x", None], pa.binary(1)),
        pa.array(["x", None]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_text_and_bytes_of_every_type(column: pa.Array) -> None:
    assert as_rows(pa.table({"value": column})) == [{"value": b"x"}, {"value": None}]


def test_a_column_of_nothing_but_nulls() -> None:
    assert as_rows(pa.table({"value": pa.nulls(2)})) == [{"value": None}, {"value": None}]


@pytest.mark.parametrize(
    ("rows", "names", "said"),
    [
        (pa.table({"a": [1], "b": [2]}), {}, "columns a, b: say which one is the value.*JSON"),
        (pa.table({"a": [{"x": 1}]}), {}, r"column 'value' of type struct<.*cannot be a value.*JSON"),
        (
            pa.table({"a": [1], "b": ["x"]}),
            {"key": "a", "value": "b"},
            "column 'a' of type int64 cannot be a key.*Cast",
        ),
        (pa.table({"a": ["x"]}), {"value": "b"}, "value='b': this column is not there; the rows have a"),
        (pa.table({"a": ["x"]}), {"value": ["a"]}, "value is the name of one column"),
        ({"value": ["x"]}, {}, "rows of type dict cannot be written"),
        ("text", {}, "rows of type str"),
        ([{"value": "x"}], {}, r"item of type dict.*from_pylist"),
        (17, {}, "rows of type int"),
    ],
)
def test_what_cannot_be_written_is_explained(rows: Any, names: dict[str, Any], said: str) -> None:
    with pytest.raises(ColumnarError, match=f"(?s){said}"):
        as_rows(rows, **names)


@pytest.mark.clients
def test_written_rows_are_counted(penstock_site: ProducingSite) -> None:
    topic = penstock_site.new_topic(partitions=3)
    table = pa.table({"id": [str(number) for number in range(1000)], "payload": [b"x" * 200] * 1000})
    written = write(table, topic, penstock_site.bootstrap, key="id", value="payload", compression="none")
    assert (written.rows, written.partitions) == (1000, 3)
    assert 200_000 < written.bytes < 250_000
    assert {row.key for row in penstock_site.read(topic)} == {row.encode() for row in table["id"].to_pylist()}


@pytest.mark.clients
def test_all_rows_or_none(penstock_site: ProducingSite) -> None:
    topic = penstock_site.new_topic()

    def failing() -> Iterator[pa.RecordBatch]:
        yield numbered(0, 10)
        raise RuntimeError("the source of the rows fails")

    with pytest.raises(RuntimeError, match="source"):
        write(failing(), topic, penstock_site.bootstrap, transactional_id="copy")
    assert penstock_site.values(topic) == []
    assert write(numbered(0, 10), topic, penstock_site.bootstrap, transactional_id="copy").rows == 10
    assert penstock_site.values(topic) == texts(range(10))


@pytest.mark.clients
def test_no_rows_are_no_problem(penstock_site: ProducingSite) -> None:
    topic = penstock_site.new_topic()
    assert write(iter(()), topic, penstock_site.bootstrap) == Written(0, 0, 0)
    assert write(numbered(0, 0), topic, penstock_site.bootstrap) == Written(0, 0, 0)


@pytest.mark.clients
def test_problems_are_told_in_the_words_of_the_caller(penstock_site: ProducingSite) -> None:
    with pytest.raises(TopicGone, match="not-there"):
        write(numbered(0, 1), "not-there", penstock_site.bootstrap)
    with pytest.raises(SettingError, match="bootstrap"):
        write(numbered(0, 1), "any", settings={})
    with pytest.raises(SettingError, match="compression"):
        write(numbered(0, 1), "any", penstock_site.bootstrap, compression="best")


@pytest.mark.clients
def test_settings_are_taken_under_kafkas_names(penstock_site: ProducingSite) -> None:
    topic = penstock_site.new_topic()
    rows = pa.table({"value": [b"the same again " * 20] * 1000})
    sizes = {}
    for codec in ("none", "gzip"):
        settings = {
            "bootstrap.servers": penstock_site.bootstrap,
            "compression.type": codec,
            "transactional.id": "named",
        }
        sizes[codec] = write(rows, topic, settings=settings).bytes
    assert sizes["gzip"] < sizes["none"] / 10
    assert write(rows, topic, penstock_site.bootstrap, settings={"acks": "1"}).rows == 1000
    with pytest.raises(SettingError, match="acks"):
        write(rows, topic, penstock_site.bootstrap, settings={"acks": "0"})
    with pytest.raises(SettingError, match=r"compression\.type"):
        write(rows, topic, penstock_site.bootstrap, settings={"compression.type": "best"})


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_read_can_be_written(site: ProducingSite, codec: str) -> None:
    """Our own reader and our own writer, there and back."""
    first, second = site.new_topic(partitions=3), site.new_topic(partitions=3)
    table = pa.table(
        {
            "key": pa.array([b"%d" % (number % 50) if number % 7 else None for number in range(5_000)]),
            "value": pa.array([b"%d" % number if number % 11 else None for number in range(5_000)]),
        }
    )
    write(table, first, site.bootstrap, compression=codec)
    was_read = read(site.bootstrap, first, headers=True).read_all()
    assert as_set(was_read) == as_set(table)
    names = {"partition": "partition", "timestamp": "timestamp"}
    write(was_read, second, site.bootstrap, compression=codec, **names)
    again = read(site.bootstrap, second, headers=True).read_all()
    dropped = ["topic"]
    assert again.drop_columns(dropped) == was_read.drop_columns(dropped)


def as_set(table: pa.Table) -> set[tuple[bytes | None, bytes | None]]:
    return set(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.clients
def test_pandas_and_polars_frames_travel(penstock_site: ProducingSite) -> None:
    topic = penstock_site.new_topic()
    frame = {"value": ["ä", "b"]}
    for rows in (pd.DataFrame(frame), pl.DataFrame(frame)):
        write(rows, topic, penstock_site.bootstrap)
    assert penstock_site.values(topic) == ["ä".encode(), b"b"] * 2
