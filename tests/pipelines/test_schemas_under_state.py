"""Columns that come, go and change under a sink that remembers: counts go on exactly, or the error says what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.status import State
from penstock.testing.broker_process import BrokerProcess

from ..spark.filled_topics import fill
from .whole_pipelines import finish, json_of, read, run_once

pytestmark = pytest.mark.spark

PER_SKU = "select sku, count(*) as n from orders group by sku"


def on_table(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / "shop.db", isolation_level=None)
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def test_columns_change_under_a_count(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    topic = new_topic()

    def pipeline(schema: str = "id long, sku string", sql: str = PER_SKU) -> Any:
        table = {"table": "sqlite:shop.db/counts", "mode": "upsert", "keys": "sku"}
        sources = {"orders": {"topic": topic, "format": "json", "schema": schema}}
        sinks = {"out": {"from": "counts", **table}}
        return read(tmp_path, broker, sources=sources, steps={"counts": sql}, sinks=sinks)

    def failing(of: Any) -> str:
        last = run_once(spark, of, tmp_path)
        assert last.state is State.FAILED
        return last.last_error or ""

    on_table(tmp_path, "create table counts (sku text primary key, n integer)")
    fill(broker.bootstrap, topic, [json_of(id=1, sku="a"), json_of(id=2, sku="b")])
    finish(spark, pipeline(), tmp_path)
    on_table(tmp_path, "alter table counts drop column n")
    fill(broker.bootstrap, topic, [json_of(id=3, sku="a")])
    assert "has no column 'n'" in failing(pipeline())
    on_table(tmp_path, "alter table counts add column n integer")
    finish(spark, pipeline(), tmp_path)
    assert on_table(tmp_path, "select sku, n from counts order by sku") == [("a", 2), ("b", None)]
    # a column that the count does not use, and one that is not in the schema any more
    fill(broker.bootstrap, topic, [json_of(sku="a", note="x"), json_of(id="five", sku="b", note="y")])
    finish(spark, pipeline("sku string, note string"), tmp_path)
    assert on_table(tmp_path, "select sku, n from counts order by sku") == [("a", 3), ("b", 2)]
    # what is remembered has other columns: refused, and nothing is written
    fill(broker.bootstrap, topic, [json_of(sku="a", note="z")])
    by_note = "select sku, count(*) as n, max(note) as note from orders group by sku"
    on_table(tmp_path, "alter table counts add column note text")
    assert "checkpoint" in failing(pipeline("sku string, note string", by_note))
    assert on_table(tmp_path, "select * from counts order by sku") == [("a", 3, None), ("b", 2, None)]
    finish(spark, pipeline("sku string, note string"), tmp_path)
    assert on_table(tmp_path, "select * from counts order by sku") == [("a", 4, None), ("b", 2, None)]
