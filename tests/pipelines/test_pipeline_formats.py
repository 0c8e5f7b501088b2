"""Every format as source and as sink, with records that cannot be read."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.testing.broker_process import BrokerProcess

from ..spark.committed_rows import committed_messages, settled_values, wait_until_settled
from ..spark.filled_topics import Message, fill
from .whole_pipelines import finish, read

pytestmark = pytest.mark.spark

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "sku", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def avro(**columns: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO, columns)
    return out.getvalue()


def values(broker: BrokerProcess, topic: str) -> list[bytes]:
    wait_until_settled(broker.bootstrap, topic)
    return [each.value() for each in committed_messages(broker.bootstrap, topic)]


def test_avro(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    source, target, as_json, dead = new_topic(), new_topic(), new_topic(), new_topic()
    good = avro(id=7, sku="a", at=1767225600000, tags=["x", "y"])
    fill(broker.bootstrap, source, [b"\0\0\0\0\x01" + good, b"\0\0\0\0\x01\x02", b"\x01" + good, Message(None)])
    (tmp_path / "orders.avsc").write_text(json.dumps(AVRO))
    pipeline = read(
        tmp_path,
        broker,
        sources={"orders": {"topic": source, "format": "avro", "schema_file": "orders.avsc", "confluent_header": True}},
        sinks={
            "avro": {"from": "orders", "topic": target, "format": "avro", "schema_file": "orders.avsc"},
            "json": {"from": "orders", "topic": as_json, "format": "json"},
        },
        on_bad_record={"topic": dead},
    )
    finish(spark, pipeline, tmp_path)
    assert values(broker, target) == [good]
    assert settled_values(broker.bootstrap, as_json) == [
        '{"id":7,"sku":"a","at":"2026-01-01T00:00:00.000Z","tags":["x","y"]}'
    ]
    reasons = [dict(each.headers())["penstock.reason"] for each in committed_messages(broker.bootstrap, dead)]
    assert len(reasons) == 3 and all(reasons)


def test_csv_and_string(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    lines, texts, out_csv, out_text, dead = (new_topic() for _ in range(5))
    fill(broker.bootstrap, lines, [b'1;"a;b";2.5', b"x;y;1", b"1;2", b"2;;"])
    fill(broker.bootstrap, texts, ["gr\u00fcn".encode(), b"\xff\xfe", b""])
    pipeline = read(
        tmp_path,
        broker,
        sources={
            "lines": {
                "topic": lines,
                "format": "csv",
                "schema": "id long, sku string, amount double",
                "format_options": {"sep": ";"},
            },
            "texts": {"topic": texts, "format": "string"},
        },
        steps={"loud": "select upper(value) as value from texts"},
        sinks={
            "csv": {"from": "lines", "topic": out_csv, "format": "csv", "key": "id"},
            "text": {"from": "loud", "topic": out_text, "format": "string"},
        },
        on_bad_record={"topic": dead},
    )
    finish(spark, pipeline, tmp_path)
    assert settled_values(broker.bootstrap, out_csv) == ["1,a;b,2.5", "2,,"]
    assert settled_values(broker.bootstrap, out_text) == ["", "GR\u00dcN"]
    bad = {each.value(): dict(each.headers()) for each in committed_messages(broker.bootstrap, dead)}
    assert set(bad) == {b"x;y;1", b"1;2", b"\xff\xfe"}
    assert bad[b"1;2"]["penstock.reason"] == b"the line has 2 fields, and the schema 3"
    assert bad[b"\xff\xfe"]["penstock.source"] == b"texts"


def test_raw(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    """Bytes, keys, headers, times and tombstones as they were."""
    source, target = new_topic(), new_topic()
    fill(
        broker.bootstrap,
        source,
        [Message(b"\xff\0", b"k", timestamp_ms=1767225600123, headers=[("a", b"1"), ("b", None)]), Message(None, b"k")],
    )
    pipeline = read(
        tmp_path,
        broker,
        sources={"records": {"topic": source, "format": "raw"}},
        steps={"kept": "select key, value, headers, timestamp from records"},
        sinks={"out": {"from": "kept", "topic": target, "format": "raw"}},
    )
    finish(spark, pipeline, tmp_path)
    wait_until_settled(broker.bootstrap, target)
    first, last = committed_messages(broker.bootstrap, target)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"\xff\0", [("a", b"1"), ("b", None)])
    assert first.timestamp()[1] == 1767225600123
    assert (last.key(), last.value()) == (b"k", None)


def test_files_of_all_formats_as_a_starting_load(
    spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path
) -> None:
    """Each file once: those that come later when the pipeline is started again."""
    target = new_topic()

    def load(number: int) -> None:
        (tmp_path / "lines" / f"{number}.csv").write_text(f"No.;Name\n{number};csv\n")
        (tmp_path / "texts" / f"{number}.txt").write_text(f"{number}\n")
        pq.write_table(pa.table({"id": [number], "sku": ["parquet"]}), tmp_path / "columns" / f"{number}.parquet")

    for folder in ("lines", "texts", "columns"):
        (tmp_path / folder).mkdir()
    load(1)
    csv = {"format": "csv", "schema": "id long, sku string", "format_options": {"sep": ";", "header": "true"}}
    pipeline = read(
        tmp_path,
        broker,
        sources={
            "lines": {"files": "lines", **csv},
            "texts": {"files": "texts/*.txt", "format": "string"},
            "columns": {"files": "columns", "format": "parquet"},
        },
        steps={
            "all_of_them": "select id, sku from lines union all select id, sku from columns "
            "union all select cast(value as long), 'string' from texts"
        },
        sinks={"out": {"from": "all_of_them", "topic": target, "format": "csv"}},
    )
    finish(spark, pipeline, tmp_path)
    load(2)
    finish(spark, pipeline, tmp_path)
    kinds = ("csv", "parquet", "string")
    expected = [f"{number},{kind}" for number in (1, 2) for kind in kinds]
    assert sorted(settled_values(broker.bootstrap, target)) == expected
