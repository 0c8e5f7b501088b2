"""Staging and merging without Spark: every mode on every database, duplicates, repetitions, zombies, leftovers."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.pipelines.relational.failures import (
    DatabaseAway,
    LoginRefused,
    NoSuchTable,
    RelationalError,
    RowsRefused,
    TableOptionError,
    TryAgain,
)
from penstock.pipelines.relational.merging import Merging, abort_batch, merge_batch
from penstock.pipelines.relational.session import DIALECTS
from penstock.pipelines.relational.staging import Staged, is_leftover, stage_name, stage_rows
from penstock.pipelines.relational.table_batch import TableBatch, used_once
from penstock.pipelines.relational.table_sink_options import parse_sink_options
from penstock.pipelines.relational.target import Target, TargetColumn, plan_target
from penstock.testing.database_servers import MariaDBServer, PostgreSQLServer

from .conftest import Shop, as_json

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.int64()), ("gone", pa.bool_())])
UPSERT = {"mode": "upsert", "keys": "id"}


def rows_of(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=False)) for row in rows], schema)


def target_of(shop: Shop, schema: pa.Schema, table: str = "t", **options: str) -> Target:
    values = {"url": f"{shop.url}/{table}", **options}
    return plan_target(parse_sink_options(values, is_stream=True), from_arrow_schema(schema))


def write(target: Target, batch: TableBatch, *tasks: list[pa.RecordBatch]) -> list[Staged]:
    staged = [stage_rows(target, batch, iter(task)) for task in tasks]
    merge_staged(target, batch, staged)
    return staged


def merge_staged(target: Target, batch: TableBatch, staged: list[Staged]) -> None:
    merge_batch(target, batch, staged)


def number(batch: int, name: str = "q", checkpoint: str = "c1") -> TableBatch:
    return TableBatch(name, batch, checkpoint)


NARROW = SCHEMA.remove(3)


def test_rows_are_inserted(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint, name varchar(20), at bigint)")
    target = target_of(shop, NARROW)
    first, second = rows_of((1, "a", 5), (2, None, 6), schema=NARROW), rows_of((1, "a", 5), schema=NARROW)
    write(target, number(0), [first, second], [], [second])
    assert shop.rows() == [(1, "a", 5)] * 3 + [(2, None, 6)]
    assert shop.stages() == set()


def test_rows_are_upserted_and_the_last_of_a_task_wins(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, name varchar(20), at bigint, kept varchar(9) DEFAULT 'kept')")
    shop.run("INSERT INTO t VALUES (1, 'old', 0, 'mine')")
    target = target_of(shop, NARROW, **UPSERT)
    write(target, number(0), [rows_of((1, "x", 9), (1, "y", 1), (2, "z", 1), schema=NARROW)])
    assert shop.rows() == [(1, "y", 1, "mine"), (2, "z", 1, "kept")]


def test_the_highest_order_wins_across_tasks(shop: Shop) -> None:
    target = target_of(shop, NARROW, create="true", orderBy="at", **UPSERT)
    newer, older = rows_of((1, "new", 9), schema=NARROW), rows_of((1, "old", 5), (1, "none", None), schema=NARROW)
    write(target, number(0), [newer], [older])
    assert shop.rows("id, name") == [(1, "new")]


def test_a_key_in_two_tasks_needs_an_order(shop: Shop) -> None:
    target = target_of(shop, NARROW, create="true", **UPSERT)
    one = rows_of((1, "a", 1), schema=NARROW)
    with pytest.raises(RelationalError, match=r"several tasks have rows with the key \(id\) = \(1\).*orderBy"):
        write(target, number(0), [one], [one])
    assert shop.rows() == []
    write(target, number(0), [one, one])
    assert shop.rows() == [(1, "a", 1)]


def test_a_flag_deletes(shop: Shop) -> None:
    target = target_of(shop, SCHEMA, create="true", deleteWhen="gone", orderBy="at", **UPSERT)
    write(target, number(0), [rows_of((1, "a", 1, False), (2, "b", 1, None), (3, "c", 1, False))])
    write(target, number(1), [rows_of((1, None, 2, True), (2, "b2", 3, False))], [rows_of((2, None, 2, True))])
    write(target, number(2), [rows_of((3, None, 2, True), (3, "back", 3, False), (9, None, 1, True))])
    assert shop.rows("id, name") == [(2, "b2"), (3, "back")]
    with shop.session() as session:
        assert [column.name for column in session.shape().columns] == ["id", "name", "at"]


def test_tombstones_delete_even_where_null_is_not_allowed(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, name varchar(20) NOT NULL, at bigint NOT NULL)")
    target = target_of(shop, NARROW, deleteWhen="tombstones", **UPSERT)
    write(target, number(0), [rows_of((1, "a", 1), (2, "b", 2), schema=NARROW)])
    write(target, number(1), [rows_of((1, None, None), schema=NARROW)])
    assert shop.rows("id, name") == [(2, "b")]
    with pytest.raises(RowsRefused, match="name"):
        write(target, number(2), [rows_of((3, None, 1), schema=NARROW)])


def test_mode_delete(shop: Shop) -> None:
    shop.run("CREATE TABLE t (a bigint, b varchar(5), PRIMARY KEY (a, b))")
    shop.run("INSERT INTO t VALUES (1, 'x'), (1, 'y'), (2, 'x')")
    schema = pa.schema([("b", pa.string()), ("a", pa.int64())])
    target = target_of(shop, schema, mode="delete", keys="a,b")
    write(target, number(0), [rows_of(("x", 1), ("x", 3), schema=schema)], [rows_of(("x", 2), schema=schema)])
    assert shop.rows() == [(1, "y")]


def test_only_keys(shop: Shop) -> None:
    schema = pa.schema([("id", pa.int64())])
    target = target_of(shop, schema, create="true", **UPSERT)
    write(target, number(0), [rows_of((1,), (1,), (2,), schema=schema)])
    write(target, number(1), [rows_of((1,), (3,), schema=schema)])
    assert shop.rows() == [(1,), (2,), (3,)]


def test_null_is_no_key(shop: Shop) -> None:
    target = target_of(shop, NARROW, create="true", **UPSERT)
    with pytest.raises(RowsRefused, match="null in 'id'"):
        write(target, number(0), [rows_of((None, "a", 1), schema=NARROW)])
    assert shop.stages() == set()


# ── once ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_that_comes_again_counts_once_however_it_is_cut(shop: Shop) -> None:
    target = target_of(shop, NARROW, create="true")
    one, two = rows_of((1, "a", 1), schema=NARROW), rows_of((2, "b", 1), schema=NARROW)
    late = [stage_rows(target, number(0), iter([one, two]))]
    write(target, number(0), [one], [two])
    merge_staged(target, number(0), late)
    assert [each.stage for each in write(target, number(0), [one, two])] == [None]
    write(target, number(1), [one])
    assert shop.rows("id") == [(1,), (1,), (2,)]
    assert shop.stages() == set()


def test_an_old_checkpoint_is_refused(shop: Shop) -> None:
    target = target_of(shop, NARROW, create="true")
    one = rows_of((1, "a", 1), schema=NARROW)
    zombie = [stage_rows(target, number(3), iter([one]))]
    write(target, number(5), [one])
    with pytest.raises(RelationalError, match=r"older than what the query has written.*batch 4.*batch 5"):
        write(target, number(4), [one])
    with pytest.raises(RelationalError, match="older than"):
        merge_staged(target, number(3), zombie)
    with pytest.raises(RelationalError, match=r"another checkpoint.*DELETE FROM penstock_batches"):
        write(target, number(5, checkpoint="c2"), [one])
    assert shop.rows("id") == [(1,)]


def test_two_queries_and_named_writes_into_one_table(shop: Shop) -> None:
    target = target_of(shop, NARROW, create="true")
    one = rows_of((1, "a", 1), schema=NARROW)
    for name in ("q", "Q", "it's"):
        write(target, number(0, name), [one])
    write(target, TableBatch("app", 7), [one])
    write(target, TableBatch("app", 7), [one])
    with pytest.raises(RelationalError, match="txnVersion must grow"):
        write(target, TableBatch("app", 6), [one])
    write(target, used_once(), [one])
    assert len(shop.rows()) == 5
    names = shop.rows("query_name, table_name, batch_id", "penstock_batches")
    assert names == sorted([("q", "t", 0), ("Q", "t", 0), ("it's", "t", 0), ("app", "t", 7)], key=repr)


def test_many_merge_the_same_batch_at_once(shop: Shop) -> None:
    target = target_of(shop, NARROW, create="true")
    one = rows_of((1, "a", 1), (2, "b", 1), schema=NARROW)
    staged = [stage_rows(target, number(0), iter([one])) for _ in range(4)]
    threads = [threading.Thread(target=merge_staged, args=(target, number(0), [each])) for each in staged]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert shop.rows("id") == [(1,), (2,)]


def test_leftovers_go_with_the_next_batch(shop: Shop) -> None:
    target = target_of(shop, NARROW, create="true")
    one = rows_of((1, "a", 1), schema=NARROW)
    dead = stage_rows(target, number(0), iter([one]))
    coming = stage_rows(target, number(2), iter([one]))
    foreign = stage_rows(target, number(0, "other"), iter([one]))
    write(target, number(1), [one])
    assert shop.stages() == {coming.stage, foreign.stage}
    assert dead.stage is not None
    abort_batch(target, [str(coming.stage), str(foreign.stage), str(dead.stage)])
    assert shop.stages() == set()
    with pytest.raises(RelationalError):
        merge_staged(target, number(2), [coming])
    assert shop.rows("id") == [(1,)]


def test_which_tables_are_leftovers() -> None:
    name, now_s = stage_name(number(5), "t"), time.time()
    assert is_leftover(name, number(5), "t", now_s)
    assert not is_leftover(name, number(4), "t", now_s)
    assert not is_leftover(name, number(5, "other"), "t", now_s)
    assert is_leftover(name, number(4), "t", now_s + 90_000)
    assert not is_leftover("penstock_stage_mine", number(5), "t", now_s + 90_000)
    assert len(stage_name(number(1 << 40), "t")) <= 63


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_values_of_all_kinds(shop: Shop) -> None:
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("flag", pa.bool_()),
            ("small", pa.int8()),
            ("single", pa.float32()),
            ("number", pa.float64()),
            ("price", pa.decimal128(10, 2)),
            ("long_price", pa.decimal128(38, 10)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "Europe/Berlin")),
            ("wall", pa.timestamp("us")),
            ("raw", pa.binary()),
            ("words", pa.list_(pa.string())),
            ("pairs", pa.map_(pa.string(), pa.int64())),
            ("mixed", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.date32()))])),
            ("text", pa.string()),
        ]
    )
    at = dt.datetime(2024, 7, 1, 10, 30, 0, 123456, dt.UTC)
    text = "a,b\n\"q\" 'x' \\ \\. %s \N{SNOWMAN} \N{GRINNING FACE}" + "y" * 300_000
    value = {
        "id": 1, "flag": True, "small": -7, "single": 1.5, "number": 0.1, "price": Decimal("12345678.90"),
        "long_price": Decimal("1234567890123456789012345678.0123456789"), "day": dt.date(1999, 12, 31), "at": at,
        "wall": at.replace(tzinfo=None), "raw": bytes(range(256)), "words": ["a", None, 'q"'], "pairs": [("k", 1)],
        "mixed": {"a": 1, "b": [dt.date(2020, 1, 2)]}, "text": text,
    }  # fmt: skip
    nulls = {name: 2 if name == "id" else "" if name == "text" else None for name in schema.names}
    target = target_of(shop, schema, create="true", **UPSERT)
    write(target, number(0), [pa.RecordBatch.from_pylist([value, nulls], schema)])
    found = shop.rows(", ".join(schema.names))
    assert found[1] == (2, *[None] * 13, "")
    row = dict(zip(schema.names, found[0], strict=True))
    assert (row["flag"], row["small"], row["single"], row["number"]) == (True, -7, 1.5, 0.1)
    assert Decimal(str(row["price"])) == value["price"]
    assert Decimal(str(row["long_price"])) == value["long_price"]
    assert str(row["day"]) == "1999-12-31"
    assert str(row["at"]).removesuffix("+00:00") == "2024-07-01 10:30:00.123456"
    assert str(row["wall"]) == "2024-07-01 10:30:00.123456"
    assert bytes(row["raw"]) == bytes(range(256))
    assert as_json(row["words"]) == ["a", None, 'q"']
    assert as_json(row["pairs"]) == {"k": 1}
    assert as_json(row["mixed"]) == {"a": 1, "b": ["2020-01-02"]}
    assert row["text"] == text


def test_odd_names_and_what_looks_like_an_attack(shop: Shop) -> None:
    odd = ["select", "a b", 'q"uo`te', "per%cent %s", "x; DROP TABLE t; --", "Größe"]
    schema = pa.schema([("id", pa.int64()), *[(name, pa.string()) for name in odd]])
    for table in ("o%22d%60d%20%25s%27", "t%3B%20DROP%20TABLE%20x"):
        target = target_of(shop, schema, table, create="true", deleteWhen="tombstones", **UPSERT)
        write(target, number(0), [rows_of((1, *odd), (2, *odd), schema=schema)])
        write(target, number(1), [rows_of((1, *["new"] * 6), (2, *[None] * 6), schema=schema)])
        with shop.session(table) as session:
            assert session.run(f"SELECT * FROM {session.table}") == [(1, *["new"] * 6)]


def test_what_a_database_does_not_have_is_refused(shop: Shop) -> None:
    schema = pa.schema([("x", pa.float64())])
    target = target_of(shop, schema, create="true")
    rows = rows_of((float("nan"),), schema=schema)
    if shop.kind == "postgresql":
        write(target, number(0), [rows])
    else:
        with pytest.raises(RowsRefused, match="column 'x' has NaN"):
            write(target, number(0), [rows])
    schema = pa.schema([("x", pa.duration("us"))])
    with pytest.raises(RelationalError, match=r"column 'x'.*no type"):
        target_of(shop, schema, "other", create="true")


@pytest.mark.mysql
def test_unsigned_columns(mariadb: MariaDBServer) -> None:
    shop = Shop("mysql", mariadb.new_database())
    shop.run("CREATE TABLE t (n bigint unsigned, m tinyint unsigned)")
    schema = pa.schema([("n", pa.decimal128(20, 0)), ("m", pa.int16())])
    target = target_of(shop, schema)
    write(target, number(0), [rows_of((Decimal(2**64 - 1), 255), schema=schema)])
    assert shop.rows() == [(2**64 - 1, 255)]
    with pytest.raises(RowsRefused, match="Out of range"):
        write(target, number(1), [rows_of((Decimal(1), -1), schema=schema)])


@pytest.mark.mysql
def test_an_engine_without_transactions(mariadb: MariaDBServer) -> None:
    """A batch that fails in the middle would stay there in part."""
    shop = Shop("mysql", mariadb.new_database())
    shop.run("CREATE TABLE t (id bigint, name varchar(20), at bigint) ENGINE = MyISAM")
    with pytest.raises(RelationalError, match=r"engine MyISAM.*no transactions.*ALTER TABLE t ENGINE = InnoDB"):
        target_of(shop, NARROW)
    shop.run("ALTER TABLE t ENGINE = InnoDB")
    write(target_of(shop, NARROW), number(0), [rows_of((1, "a", 5), schema=NARROW)])
    assert shop.rows() == [(1, "a", 5)]


@pytest.mark.postgres
def test_types_that_only_postgresql_has(postgresql: PostgreSQLServer) -> None:
    shop = Shop("postgresql", postgresql.new_database())
    shop.run("CREATE TYPE mood AS ENUM ('ok')")
    shop.run("CREATE TABLE t (u uuid, m mood, a integer[], s text[], j jsonb, id bigserial)")
    schema = pa.schema(
        [
            ("u", pa.string()),
            ("m", pa.string()),
            ("a", pa.list_(pa.int64())),
            ("s", pa.list_(pa.string())),
            ("j", pa.string()),
        ]
    )
    target = target_of(shop, schema)
    one = "0b4e4f6e-7a3e-4d1c-8a54-0f1d6a1f9a01"
    write(target, number(0), [rows_of((one, "ok", [1, None], ["a,b", '"\\'], '{"x": 1}'), schema=schema)])
    assert shop.rows("u::text, m::text, a, s, j, id") == [(one, "ok", [1, None], ["a,b", '"\\'], {"x": 1}, 1)]
    with pytest.raises(RowsRefused, match="invalid input value for enum"):
        write(target, number(1), [rows_of((one, "bad", None, None, None), schema=schema)])


# ── tables that do not fit, and that change ──────────────────────────────────────────────────────────────────────────


def test_a_table_that_does_not_fit(shop: Shop) -> None:
    with pytest.raises((NoSuchTable, LoginRefused), match="create"):
        target_of(shop, NARROW)
    shop.run("CREATE TABLE t (id bigint, name varchar(20), at bigint, must int NOT NULL)")
    with pytest.raises(RelationalError, match=r"column 'must'.*no default"):
        target_of(shop, NARROW)
    with pytest.raises(RelationalError, match="has no column 'gone'"):
        target_of(shop, SCHEMA)
    with pytest.raises(RelationalError, match="unique index on exactly the keys"):
        target_of(shop, NARROW.append(pa.field("must", pa.int32())), **UPSERT)
    with pytest.raises(TableOptionError, match=r"option keys: names 'idd'.*did you mean 'id'"):
        target_of(shop, NARROW, mode="upsert", keys="idd")


def test_columns_come_go_and_change_between_batches(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint, name varchar(20), at bigint)")
    one = rows_of((1, "a", 1), schema=NARROW)
    write(target_of(shop, NARROW), number(0), [one])
    shop.run("ALTER TABLE t ADD COLUMN note varchar(10)")
    write(target_of(shop, NARROW), number(1), [one])
    shop.run("ALTER TABLE t DROP COLUMN at")
    with pytest.raises(RelationalError, match="has no column 'at'"):
        target_of(shop, NARROW)
    less = pa.schema([("id", pa.int64()), ("name", pa.string())])
    if shop.kind == "sqlite":
        write(target_of(shop, less), number(2), [rows_of((2, "word"), schema=less)])
        return
    change = "ALTER COLUMN name TYPE integer USING NULL" if shop.kind == "postgresql" else "MODIFY name integer"
    shop.run("UPDATE t SET name = NULL")
    shop.run(f"ALTER TABLE t {change}")
    write(target_of(shop, less), number(2), [rows_of((2, "7"), schema=less)])
    with pytest.raises(RowsRefused, match="word"):
        write(target_of(shop, less), number(3), [rows_of((3, "word"), schema=less)])
    assert shop.rows("id, name, note")[-1] == (2, 7, None)


def test_constraints_are_named_and_nothing_is_half_there(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, name varchar(20) NOT NULL, at bigint)")
    target = target_of(shop, NARROW)
    good, double = rows_of((1, "a", 1), schema=NARROW), rows_of((2, "b", 1), (2, "c", 1), schema=NARROW)
    with pytest.raises(RowsRefused, match="does not take these rows"):
        write(target, number(0), [good], [double])
    with pytest.raises(RowsRefused, match="name"):
        write(target, number(0), [good], [rows_of((3, None, 1), schema=NARROW)])
    assert shop.rows() == []
    write(target, number(0), [good])
    assert shop.rows("id") == [(1,)]


# ── databases that are away ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.postgres
@pytest.mark.mysql
def test_wrong_passwords_and_databases_are_named_without_the_password(
    postgresql: PostgreSQLServer, mariadb: MariaDBServer
) -> None:
    for server in (postgresql, mariadb):
        kind = server.url("x").partition(":")[0]
        for url in (f"{kind}://penstock:hunter2@127.0.0.1:{server.port}/mysql/t", server.url("nowhere") + "/t"):
            options = parse_sink_options({"url": url, "retryFor": "0s"}, is_stream=True)
            with pytest.raises(LoginRefused, match="penstock") as caught:
                plan_target(options, from_arrow_schema(NARROW))
            assert "hunter2" not in str(caught.value) + repr(options)
    away = parse_sink_options({"url": "postgresql://u:hunter2@127.0.0.1:1/db/t", "retryFor": "0s"}, is_stream=True)
    with pytest.raises(DatabaseAway, match="cannot be reached"):
        plan_target(away, from_arrow_schema(NARROW))


@pytest.mark.postgres
def test_a_merge_waits_for_a_database_that_comes_back() -> None:
    with PostgreSQLServer() as server:
        shop = Shop("postgresql", server.new_database())
        target = target_of(shop, NARROW, create="true")
        staged = [stage_rows(target, number(0), iter([rows_of((1, "a", 1), schema=NARROW)]))]
        server.stop()
        merging = threading.Thread(target=merge_staged, args=(target, number(0), staged))
        merging.start()
        server.start()
        merging.join(60)
        assert shop.rows("id") == [(1,)]


@pytest.mark.postgres
def test_rows_that_a_crash_took_away_are_noticed() -> None:
    """A crash empties tables that are not logged."""
    with PostgreSQLServer() as server:
        shop = Shop("postgresql", server.new_database())
        target = target_of(shop, NARROW, create="true")
        staged = [stage_rows(target, number(0), iter([rows_of((1, "a", 1), schema=NARROW)]))]
        server.kill()
        server.start()
        with pytest.raises(RelationalError, match="has lost rows that were staged"):
            merge_staged(target, number(0), staged)
        write(target, number(0), [rows_of((1, "a", 1), schema=NARROW)])
        assert shop.rows("id") == [(1,)]


def test_sqlite_locked(tmp_path: Path) -> None:
    shop = Shop("sqlite", f"sqlite://{tmp_path / 'shop.db'}")
    shop.run("CREATE TABLE t (id bigint, name text, at bigint)")
    target = target_of(shop, NARROW, "t?timeout=0.05", retryFor="1s")
    one = rows_of((1, "a", 1), schema=NARROW)
    staged = [stage_rows(target, number(0), iter([one]))]
    other = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TryAgain, match="is locked by somebody else"):
        merge_staged(target, number(0), staged)
    other.execute("ROLLBACK")
    other.close()
    merge_staged(target, number(0), staged)
    assert shop.rows("id") == [(1,)]


# ── statements ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_statements() -> None:
    options = parse_sink_options(
        {"url": "postgresql://h/db/s.t", "orderBy": "at", "deleteWhen": "gone", **UPSERT}, is_stream=True
    )
    columns = (
        TargetColumn("id", "bigint", True, True),
        TargetColumn("at", "bigint", False, True),
        TargetColumn("gone", "boolean", False, False),
    )
    merging = Merging(DIALECTS["postgresql"], Target(options, columns), ["s0", "s1"])
    delete, upsert = merging.statements(deletes=1)
    last = (
        "SELECT * FROM (SELECT a.*, row_number() OVER (PARTITION BY c0 ORDER BY (c1 IS NULL), c1 DESC, t DESC, n DESC) "
        "AS r FROM (SELECT s.*, 0 AS t FROM s0 s UNION ALL SELECT s.*, 1 AS t FROM s1 s) a) b WHERE r = 1"
    )
    assert delete == f'DELETE FROM "s"."t" WHERE ("id") IN (SELECT c0 FROM ({last}) l WHERE d = 1)'
    assert upsert == (
        f'INSERT INTO "s"."t" ("id", "at") SELECT c0, c1 FROM ({last}) l WHERE d = 0 '
        'ON CONFLICT ("id") DO UPDATE SET "at" = excluded."at"'
    )
    assert merging.statements(deletes=0) == [upsert]
    assert Merging(DIALECTS["postgresql"], Target(options, columns), []).statements(0) == []
