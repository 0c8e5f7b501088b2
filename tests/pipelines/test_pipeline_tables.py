"""Tables that pipelines follow: by a growing column, and by the changes that PostgreSQL logs."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.database_servers import PostgreSQLServer

from ..spark.committed_rows import committed_messages, settled_values, wait_until_settled
from .whole_pipelines import finish, read


def change(file: Path, *statements: str) -> None:
    with sqlite3.connect(file) as connection:
        for each in statements:
            connection.execute(each)
    connection.close()


@pytest.mark.spark
def test_a_growing_column(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> None:
    """Rows that are there, then new and changed ones; into a topic, and deleted from a table by key."""
    target, shop = new_topic(), tmp_path / "shop.db"
    change(
        shop,
        "create table orders (id integer primary key, version integer not null, amount real)",
        "create table open (id integer primary key)",
        "insert into orders values (1, 1, 1.5), (2, 2, 2.5)",
        "insert into open values (1), (2), (3), (4)",
    )
    pipeline = read(
        tmp_path,
        broker,
        sources={"orders": {"table": "sqlite:shop.db/orders", "follow": {"column": "version", "overlap": 10}}},
        steps={"ids": "select id from orders"},
        sinks={
            "out": {"from": "orders", "topic": target, "key": "id", "format": "json"},
            "done": {"from": "ids", "table": "sqlite:shop.db/open", "mode": "delete", "keys": "id"},
        },
    )
    finish(spark, pipeline, tmp_path)
    change(shop, "update orders set version = 4, amount = 9 where id = 1", "insert into orders values (3, 3, 3.5)")
    for _ in range(2):
        finish(spark, pipeline, tmp_path)
    told = [json.loads(each) for each in settled_values(broker.bootstrap, target)]
    assert sorted((each["id"], each["version"], each["amount"]) for each in told) == [
        (1, 1, 1.5),
        (1, 4, 9.0),
        (2, 2, 2.5),
        (3, 3, 3.5),
    ]
    with sqlite3.connect(shop) as connection:
        assert connection.execute("select id from open").fetchall() == [(4,)]
    connection.close()


@pytest.mark.spark
@pytest.mark.postgres
def test_changes_of_a_table_in_a_topic(
    spark: Any, broker: BrokerProcess, new_topic: Any, postgresql: PostgreSQLServer, tmp_path: Path
) -> None:
    """The pipeline of the guide to change capture: keyed by primary key, deleted rows are tombstones."""
    target, url, slot = new_topic(), postgresql.new_database(), f"s_{uuid4().hex[:8]}"
    pipeline = read(
        tmp_path,
        broker,
        connections={"shop": {"url": url}},
        sources={"changes": {"table": "postgresql://shop/stock", "changes": {"slot": slot, "publication": "shop"}}},
        steps={"rows": "select key.id as id, after.name, after.amount, deleted from changes where op <> 'truncate'"},
        sinks={
            "topic": {"from": "rows", "topic": target, "key": "id", "format": "json", "delete_when": "deleted"},
        },
    )
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("create table stock (id int primary key, name text, amount int)")
        database.execute("create publication shop for table stock")
        database.execute("insert into stock values (1, 'a', 10), (2, 'b', 20)")
        try:
            finish(spark, pipeline, tmp_path)
            database.execute("update stock set amount = 11 where id = 1")
            database.execute("delete from stock where id = 2")
            database.execute("insert into stock values (3, 'c', 30)")
            for _ in range(2):
                finish(spark, pipeline, tmp_path)
        finally:
            database.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", (slot,)
            )
    wait_until_settled(broker.bootstrap, target)
    told = [(each.key(), each.value()) for each in committed_messages(broker.bootstrap, target)]
    assert len(told) == 5
    values = {(key, None if value is None else json.loads(value)["amount"]) for key, value in told}
    assert values == {(b"1", 10), (b"2", 20), (b"1", 11), (b"2", None), (b"3", 30)}
