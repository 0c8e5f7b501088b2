"""Files as sources, functions as steps, and what streams remember: joins, windows, what comes twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.running_session import prepare_workers
from penstock.pipelines.status import State
from penstock.testing.broker_process import BrokerProcess

from ..spark.committed_rows import committed_messages, settled_values
from ..spark.filled_topics import fill
from .whole_pipelines import finish, json_of, read, run_once

pytestmark = pytest.mark.spark

STEPS = """
from pyspark.sql import functions as F

def enrich(orders, names):
    shout = F.udf(lambda text: text.upper() + suffix())
    return orders.join(names, "sku", "left").withColumn("title", shout(F.coalesce("title", F.lit("none"))))

def suffix():
    return "!"
"""


def test_files_and_a_function(
    spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, dead = new_topic(), new_topic()
    (tmp_path / "load").mkdir()
    (tmp_path / "load" / "1.json").write_text('{"id": 1, "sku": "a"}\nnope\n\n{"id": 2, "sku": "b"}\n')
    (tmp_path / "names").mkdir()
    for number, line in enumerate(("a,apple", "c,cherry")):  # a header of other words, in each of the files
        (tmp_path / "names" / f"{number}.csv").write_text(f'"Stock number","Name"\n{line}\n')
    (tmp_path / "steps_of_files.py").write_text(STEPS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    pipeline = read(
        tmp_path,
        broker,
        sources={
            "past": {"files": "load/*.json", "format": "json", "schema": "id long, sku string"},
            "names": {
                "files": "names",
                "format": "csv",
                "schema": "sku string, title string",
                "format_options": {"header": "true"},
                "lookup": True,
            },
        },
        steps={"enriched": {"python": "steps_of_files:enrich", "from": ["past", "names"]}},
        sinks={"out": {"from": "enriched", "topic": target, "format": "json", "key": "id"}},
        on_bad_record={"topic": dead},
    )
    prepare_workers(tmp_path)
    finish(spark, pipeline, tmp_path)
    (tmp_path / "load" / "2.json").write_text('{"id": 3, "sku": "a"}\n')
    finish(spark, pipeline, tmp_path)
    found = {each["id"]: each["title"] for each in map(json.loads, settled_values(broker.bootstrap, target))}
    assert found == {1: "APPLE!", 2: "NONE!", 3: "APPLE!"}
    (bad,) = committed_messages(broker.bootstrap, dead)
    assert bad.value() == b"nope" and dict(bad.headers())["penstock.file"].endswith(b"load/1.json")


def test_windows_that_are_final(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    """A window comes when nothing more can belong to it, once; a row that comes too late changes nothing."""
    source, target = new_topic(), new_topic()
    pipeline = read(
        tmp_path,
        broker,
        sources={
            "events": {
                "topic": source,
                "format": "json",
                "schema": "id long, at timestamp",
                "watermark": "at 1 minute",
                "deduplicate": "id",
            }
        },
        steps={
            "counts": "select window.start as minute, n from "
            "(select window(at, '1 minute') as window, count(*) as n from events group by 1)"
        },
        sinks={
            "out": {"from": "counts", "topic": target, "format": "json"},
            "files": {"from": "counts", "parquet": "counts"},
        },
    )
    for batch in (
        [(1, "00:10"), (1, "00:10"), (2, "00:20")],
        [(2, "00:20"), (3, "05:00")],
        [(4, "00:30"), (5, "09:00")],
    ):
        fill(broker.bootstrap, source, [json_of(id=id, at=f"2026-01-01T00:{time}Z") for id, time in batch])
        finish(spark, pipeline, tmp_path)
    expected = [("2026-01-01T00:00:00.000Z", 2), ("2026-01-01T00:05:00.000Z", 1)]
    told = [json.loads(each) for each in settled_values(broker.bootstrap, target)]
    assert [(each["minute"], each["n"]) for each in told] == expected
    assert sorted(row.n for row in spark.read.parquet(str(tmp_path / "counts")).collect()) == [1, 2]


def test_two_streams_are_joined(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    left, right, target = new_topic(), new_topic(), new_topic()
    pipeline = read(
        tmp_path,
        broker,
        sources={
            "orders": {"topic": left, "format": "json", "schema": "id long, at timestamp", "watermark": "at 1 minute"},
            "paid": {
                "topic": right,
                "format": "json",
                "schema": "id long, paid_at timestamp",
                "watermark": "paid_at 1 minute",
            },
        },
        steps={
            "both": "select o.id, paid_at from orders o join paid p on o.id = p.id "
            "and paid_at between at and at + interval 5 minutes"
        },
        sinks={"out": {"from": "both", "topic": target, "format": "json"}},
    )
    fill(broker.bootstrap, left, [json_of(id=n, at="2026-01-01T00:00:00Z") for n in (1, 2, 3)])
    fill(broker.bootstrap, right, [json_of(id=1, paid_at="2026-01-01T00:01:00Z")])
    finish(spark, pipeline, tmp_path)
    paid = [json_of(id=2, paid_at="2026-01-01T00:04:00Z"), json_of(id=3, paid_at="2026-01-01T00:06:00Z")]
    fill(broker.bootstrap, right, paid)
    finish(spark, pipeline, tmp_path)
    assert [json.loads(each)["id"] for each in settled_values(broker.bootstrap, target)] == [1, 2]


def test_a_schema_that_changes(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    """New fields are ignored until the schema has them; the checkpoint stays good for a sink without state."""
    source, target = new_topic(), new_topic()

    def with_schema(schema: str) -> Any:
        orders = {"topic": source, "format": "json", "schema": schema}
        sinks = {"out": {"from": "orders", "topic": target, "format": "json"}}
        return read(tmp_path, broker, sources={"orders": orders}, sinks=sinks)

    fill(broker.bootstrap, source, [json_of(id=1, sku="a")])
    finish(spark, with_schema("id long"), tmp_path)
    fill(broker.bootstrap, source, [json_of(id=2, sku="b"), json_of(id=3)])
    finish(spark, with_schema("id long, sku string"), tmp_path)
    fill(broker.bootstrap, source, [json_of(id="four", sku="b")])
    last = run_once(spark, with_schema("id long, sku string"), tmp_path)
    assert last.state is State.FAILED and last.last_error is not None and "offset 3" in last.last_error
    finish(spark, with_schema("id string, sku string"), tmp_path)
    assert settled_values(broker.bootstrap, target) == [
        '{"id":"four","sku":"b"}',
        '{"id":1}',
        '{"id":2,"sku":"b"}',
        '{"id":3,"sku":null}',
    ]
