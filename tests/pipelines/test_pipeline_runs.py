"""Whole pipelines through real Spark and a real broker: what goes in, what comes out, and what is bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from penstock.pipelines.reading import read_document
from penstock.pipelines.running import Run
from penstock.pipelines.running_session import register_sources
from penstock.pipelines.specification import Pipeline
from penstock.pipelines.status import PipelineStatus, State
from penstock.testing.broker_process import BrokerProcess

from ..spark.committed_rows import committed_messages, settled_values
from ..spark.filled_topics import Message, fill

pytestmark = pytest.mark.spark

SCHEMA = "id long not null, sku string, amount double, at timestamp"


def order(number: int, sku: str = "a", amount: float = 1.0, minute: int = 0) -> bytes:
    return json.dumps({"id": number, "sku": sku, "amount": amount, "at": f"2026-01-01T00:{minute:02}:00Z"}).encode()


def made(folder: Path, broker: BrokerProcess, topic: str, **parts: Any) -> Pipeline:
    document = {
        "name": "shop",
        "brokers": broker.bootstrap,
        "sources": {"orders": {"topic": topic, "format": "json", "schema": SCHEMA}},
        **parts,
    }
    return read_document(document, {}, folder / "shop.yaml")


def run_once(spark: Any, pipeline: Pipeline, folder: Path) -> PipelineStatus:
    register_sources(spark)
    return Run(spark, pipeline, folder / "state").run(once=True)


def test_topic_to_topic_with_bad_records_beside(
    spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path
) -> None:
    """Run twice: what was written is not written again, and bad records are in the other topic once."""
    source, target, dead = new_topic(), new_topic(), new_topic()
    headers = [("trace", b"7")]
    fill(
        broker.bootstrap,
        source,
        [order(1), b"nope", Message(b'{"id": "x"}', b"k", headers=headers), Message(None), order(2)],
    )
    pipeline = made(
        tmp_path,
        broker,
        source,
        steps={"large": "select id, amount * 2 as twice from orders"},
        sinks={"out": {"from": "large", "topic": target, "key": "id", "format": "json"}},
        on_bad_record={"topic": dead},
    )
    for _ in range(2):
        last = run_once(spark, pipeline, tmp_path)
        assert last.state is State.FINISHED, last.last_error
    fill(broker.bootstrap, source, [b"{}", order(3)])
    assert run_once(spark, pipeline, tmp_path).state is State.FINISHED
    assert settled_values(broker.bootstrap, target) == [f'{{"id":{n},"twice":2.0}}' for n in (1, 2, 3)]
    bad = [(each.value(), dict(each.headers())) for each in committed_messages(broker.bootstrap, dead)]
    assert sorted(value or b"" for value, _ in bad) == [b"", b"nope", b'{"id": "x"}', b"{}"]
    told = {value: found for value, found in bad}
    assert told[b'{"id": "x"}']["trace"] == b"7"
    assert told[b'{"id": "x"}']["penstock.reason"] == b"id: bigint is wanted, and this is a text"
    assert told[b"nope"]["penstock.offset"] == b"1" and told[b"nope"]["penstock.topic"] == source.encode()
    assert told[b"{}"]["penstock.reason"].startswith(b"id is missing")


def test_a_bad_record_stops_the_pipeline_if_so_asked(
    spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    fill(broker.bootstrap, source, [order(1), b"nope"])
    sinks = {"out": {"from": "orders", "topic": target, "format": "json"}}
    last = run_once(spark, made(tmp_path, broker, source, sinks=sinks), tmp_path)
    assert last.state is State.FAILED
    assert last.last_error is not None and "offset 1" in last.last_error and "does not fit" in last.last_error
    assert settled_values(broker.bootstrap, target) == []
    last = run_once(spark, made(tmp_path, broker, source, sinks=sinks, on_bad_record="drop"), tmp_path)
    assert last.state is State.FINISHED and last.bad_records == 1
    assert len(settled_values(broker.bootstrap, target)) == 1


def test_several_sinks_that_stop_at_the_same_record(
    spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path
) -> None:
    """The second one fails while the first one's failure ends the run: the end is told all the same."""
    source = new_topic()
    fill(broker.bootstrap, source, [b"nope"])
    sinks = {f"out{number}": {"from": "orders", "topic": new_topic(), "format": "json"} for number in range(3)}
    for _ in range(3):
        last = run_once(spark, made(tmp_path, broker, source, sinks=sinks), tmp_path)
        assert last.state is State.FAILED
        assert last.last_error is not None and "a record cannot be read" in last.last_error


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"steps": {"big": "select nope from orders"}}, "steps.big: A column, variable, or function parameter"),
        ({"steps": {"big": {"python": "no_module:f", "from": "orders"}}}, "steps.big: no_module:f cannot be imported"),
        (
            {"sinks": {"out": {"from": "orders", "parquet": "out", "date": "nope"}}},
            "sinks.out: there is no column nope",
        ),
    ],
)
def test_what_cannot_be_built_is_named(
    spark: Any, broker: BrokerProcess, tmp_path: Path, parts: dict[str, Any], told: str
) -> None:
    document = {"sinks": {"out": {"from": "orders", "parquet": "out"}}, **parts}
    last = run_once(spark, made(tmp_path, broker, "orders", **document), tmp_path)
    assert last.state is State.FAILED and last.last_error is not None
    assert last.last_error.startswith(told) and "SQLSTATE" not in last.last_error


class _FailsAtTheEnd:
    """A query that fails at the moment when it is stopped."""

    isActive = True

    def stop(self) -> None:
        raise StreamingQueryException("Writing job failed")


def test_a_query_that_fails_while_it_is_stopped_holds_nobody_up(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    run = Run(spark, made(tmp_path, broker, "orders", sinks={"out": {"from": "orders", "parquet": "out"}}), tmp_path)
    run._end([_FailsAtTheEnd()] * 2)  # type: ignore[list-item]


def test_an_aggregate_that_changes_goes_out_once_a_batch(
    spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    pipeline = made(
        tmp_path,
        broker,
        source,
        steps={"sums": "select sku, sum(amount) as total from orders group by sku"},
        sinks={"out": {"from": "sums", "topic": target, "key": "sku", "format": "json"}},
    )
    for amount in (1.0, 2.0):
        fill(broker.bootstrap, source, [order(1, amount=amount)])
        last = run_once(spark, pipeline, tmp_path)
        assert last.state is State.FINISHED, last.last_error
    assert settled_values(broker.bootstrap, target) == ['{"sku":"a","total":1.0}', '{"sku":"a","total":3.0}']


def test_parquet_by_date(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    source = new_topic()
    fill(broker.bootstrap, source, [order(1), order(2)])
    pipeline = made(tmp_path, broker, source, sinks={"out": {"from": "orders", "parquet": "out", "date": "at"}})
    for _ in range(2):
        last = run_once(spark, pipeline, tmp_path)
        assert last.state is State.FINISHED, last.last_error
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == ["date=2026-01-01"]
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [1, 2]
