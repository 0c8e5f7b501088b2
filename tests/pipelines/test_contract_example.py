"""The pipeline that the guide begins with: a topic and a lookup table become a topic, a table and Parquet files."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess

from ..spark.committed_rows import committed_messages, settled_values
from ..spark.filled_topics import fill
from .whole_pipelines import finish, json_of, read

pytestmark = pytest.mark.spark


def order(number: int, sku: str, amount: float, time: str) -> bytes:
    return json_of(id=number, sku=sku, amount=amount, at=f"2026-01-01T{time}Z")


def table_rows(file: Path, select: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(file) as connection:
        rows = connection.execute(select).fetchall()
    connection.close()
    return rows


def change_table(file: Path, *statements: str) -> None:
    with sqlite3.connect(file) as connection:
        for each in statements:
            connection.execute(each)
    connection.close()


def test_revenue_by_minute(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    """Twice, with new orders and a new item in between: sums go on, and nothing is there twice."""
    orders, revenue, dead, shop = new_topic(partitions=2), new_topic(), new_topic(), tmp_path / "shop.db"
    change_table(shop, "create table items (sku text primary key, title text)", "insert into items values ('a', 'A')")
    pipeline = read(
        tmp_path,
        broker,
        sources={
            "orders": {
                "topic": orders,
                "format": "json",
                "schema": "id long, sku string, amount double, at timestamp",
                "watermark": "at 2 minutes",
            },
            "items": {"table": "sqlite:shop.db/items"},
        },
        steps={
            "known": "select id, sku, title, amount, at from orders join items using (sku)",
            "revenue": "select window(at, '1 minute').start as minute, sku, sum(amount) as revenue\n"
            "from orders join items using (sku) group by 1, 2",
        },
        sinks={
            "to_topic": {"from": "revenue", "topic": revenue, "key": "sku", "format": "json"},
            "to_table": {
                "from": "revenue",
                "table": "sqlite:shop.db/revenue",
                "mode": "upsert",
                "keys": ["minute", "sku"],
                "create": True,
            },
            "to_files": {"from": "known", "parquet": "known", "date": "at"},
        },
        on_bad_record={"topic": dead},
    )
    fill(broker.bootstrap, orders, [order(1, "a", 1, "00:00:10"), order(2, "b", 9, "00:00:20"), b"nope"])
    finish(spark, pipeline, tmp_path)
    assert table_rows(shop, "select minute, sku, revenue from revenue") == [("2026-01-01 00:00:00.000000", "a", 1.0)]
    change_table(shop, "insert into items values ('b', 'B')")
    fill(broker.bootstrap, orders, [order(3, "a", 2, "00:00:30"), order(4, "b", 5, "00:01:00")])
    for _ in range(2):
        finish(spark, pipeline, tmp_path)
    assert table_rows(shop, "select substr(minute, 12, 5), sku, revenue from revenue order by 1") == [
        ("00:00", "a", 3.0),
        ("00:01", "b", 5.0),
    ]
    told = [json.loads(each) for each in settled_values(broker.bootstrap, revenue)]
    assert sorted((each["sku"], each["revenue"]) for each in told) == [("a", 1.0), ("a", 3.0), ("b", 5.0)]
    assert {each.key() for each in committed_messages(broker.bootstrap, revenue)} == {b"a", b"b"}
    files = spark.read.parquet(str(tmp_path / "known"))
    assert sorted((row.id, row.title) for row in files.collect()) == [(1, "A"), (3, "A"), (4, "B")]
    assert settled_values(broker.bootstrap, dead) == ["nope"]
