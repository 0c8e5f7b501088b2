"""Tables read whole, through Spark, from every database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.relational.data_source import RelationalTable
from penstock.pipelines.relational.filters import filter_conditions
from penstock.pipelines.relational.session import open_session
from penstock.pipelines.relational.snapshot import SnapshotReader
from penstock.pipelines.relational.source_options import parse_source_options
from penstock.pipelines.relational.table_source import source_schema

from .database_kinds import KINDS
from .source_tables import SourceDatabase, new_source_database


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SourceDatabase]:
    found = new_source_database(request.param, request, tmp_path)
    yield found
    found.close()


def read(spark: Any, database: SourceDatabase, table: str = "items", **options: str) -> Any:
    spark.dataSource.register(RelationalTable)
    return spark.read.format("penstock-table").option("url", database.table_url(table)).options(**options).load()


def fill(database: SourceDatabase, count: int) -> list[tuple[int, str | None]]:
    database.run("CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(40))")
    rows = [(number, None if number % 7 == 0 else f"item {number} ä") for number in range(1, count + 1)]
    for at in range(0, count, 1000):
        database.insert(rows[at : at + 1000])
    return rows


@pytest.mark.spark
@pytest.mark.parametrize("database", KINDS, indirect=True)
@pytest.mark.parametrize("partitions", ["1", "4"])
def test_a_table_is_read_whole(spark: Any, database: SourceDatabase, partitions: str) -> None:
    rows = fill(database, 5000)
    frame = read(spark, database, partitions=partitions)
    assert frame.rdd.getNumPartitions() == int(partitions)
    assert sorted(tuple(row) for row in frame.collect()) == rows


@pytest.mark.spark
@pytest.mark.parametrize("database", KINDS, indirect=True)
def test_keys_of_text_are_cut_by_counting(spark: Any, database: SourceDatabase) -> None:
    database.run("CREATE TABLE items (name VARCHAR(40) PRIMARY KEY, price INTEGER)")
    rows = [(f"{chr(97 + number % 26)}-{number}", number) for number in range(500)]
    database.insert(rows)
    frame = read(spark, database, partitions="3")
    assert frame.rdd.getNumPartitions() == 3
    assert sorted(tuple(row) for row in frame.collect()) == sorted(rows)


@pytest.mark.spark
@pytest.mark.parametrize("database", KINDS, indirect=True)
def test_a_column_is_chosen_that_has_nulls(spark: Any, database: SourceDatabase) -> None:
    database.run("CREATE TABLE items (id INTEGER PRIMARY KEY, size INTEGER)")
    rows = [(number, None if number % 3 == 0 else number * 10) for number in range(100)]
    database.insert(rows)
    frame = read(spark, database, partitions="4", partitionColumn="size", columns="size,id")
    assert frame.columns == ["size", "id"]
    assert sorted((row.id, row.size) for row in frame.collect()) == rows


@pytest.mark.spark
@pytest.mark.parametrize("database", KINDS, indirect=True)
def test_filters_read_less_and_change_nothing(spark: Any, database: SourceDatabase) -> None:
    rows = fill(database, 200)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, database).where("id > 20 and id <= 60 and name in ('item 22 ä', 'item 199 ä')")
        assert [tuple(row) for row in frame.collect()] == [rows[21]]
        assert read(spark, database).where("name is null and id < 20").count() == 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_database_is_given_what_it_can_check(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan, In, Not

    database = new_source_database("sqlite", request, tmp_path)
    fill(database, 3)
    values = {"url": database.table_url()}
    with open_session(parse_source_options(values).address) as session:
        filters = [GreaterThan(("id",), 1), In(("name",), ("a", "b")), GreaterThan(("name",), "a"), EqualTo(("x",), 1)]
        found = filter_conditions(session, source_schema(values), [*filters, Not(filters[0])])
    assert [(each.sql, each.parameters) for each in found] == [("`id` > ?", (1,)), ("`name` IN (?, ?)", ("a", "b"))]
    database.close()


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_types_of_postgresql(spark: Any, database: SourceDatabase) -> None:
    database.run(
        "CREATE TABLE items (id bigint PRIMARY KEY, a smallint, b real, c double precision, d numeric(10,2), "
        "e boolean, f bytea, g date, h timestamp, i timestamptz, j uuid, k jsonb, l int[], m text[], n interval, "
        "o numeric, p time)"
    )
    database.run(
        "INSERT INTO items VALUES (1, -2, 1.5, 2.25, 12.34, true, '\\x00ff', '2026-01-31', "
        "'2026-01-31 10:00:00.123456', '2026-01-31 10:00:00+02', "
        "'0b9c0c4e-2c73-4b5e-8a45-0d2c1f0a0001', '{\"a\": [1, 2]}', '{1,NULL,3}', "
        "'{x,y}', '1 day 02:00', 1.5, '10:00')"
    )
    database.run("INSERT INTO items (id) VALUES (2)")
    first, second = sorted(read(spark, database).collect())
    assert tuple(first)[:9] == (
        1, -2, 1.5, 2.25, Decimal("12.34"), True, bytearray(b"\0\xff"), date(2026, 1, 31),
        datetime(2026, 1, 31, 10, 0, 0, 123456),
    )  # fmt: skip
    assert first.i.astimezone(UTC) == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert tuple(first)[10:] == (
        "0b9c0c4e-2c73-4b5e-8a45-0d2c1f0a0001", '{"a": [1, 2]}', [1, None, 3], ["x", "y"], "1 day 02:00:00",
        Decimal("1.5"), "10:00:00",
    )  # fmt: skip
    assert tuple(second) == (2, *[None] * 16)


@pytest.mark.spark
@pytest.mark.mysql
@pytest.mark.parametrize("database", ["mysql"], indirect=True)
def test_types_of_mysql(spark: Any, database: SourceDatabase) -> None:
    database.run(
        "CREATE TABLE items (id bigint unsigned PRIMARY KEY, a tinyint(1), b bit(9), c decimal(10,2), d datetime(6), "
        "e timestamp(6) NULL, f time, g json, h enum('x','y'), i blob, j date, k double, l year)"
    )
    database.run(
        "INSERT INTO items VALUES (18446744073709551615, 1, 257, 12.34, '2026-01-31 10:00:00.5', "
        "'2026-01-31 10:00:00.5', '-30:00:01', '{\"a\": 1}', 'y', x'00ff', '2026-01-31', 2.5, 2026)"
    )
    (row,) = read(spark, database).collect()
    assert (row.id, row.a, row.b, row.c) == (Decimal(18446744073709551615), True, 257, Decimal("12.34"))
    assert row.d == datetime(2026, 1, 31, 10, 0, 0, 500000)
    assert row.e.astimezone(UTC) == datetime(2026, 1, 31, 10, 0, 0, 500000, tzinfo=UTC)
    rest = ("-30:00:01", '{"a": 1}', "y", bytearray(b"\0\xff"), date(2026, 1, 31), 2.5, 2026)
    assert tuple(row)[6:] == rest


@pytest.mark.spark
def test_types_of_sqlite(spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    database = new_source_database("sqlite", request, tmp_path)
    columns = "id INTEGER PRIMARY KEY, a BOOLEAN, b TIMESTAMP, c DATETIME, d DATE, e DECIMAL(8,2), f"
    database.run(f"CREATE TABLE items ({columns})")
    database.insert([(1, 1, "2026-01-31T10:00:00Z", "2026-01-31 10:00:00.5", "2026-01-31", 1.25, 7)])
    (row,) = read(spark, database).collect()
    assert row.b.astimezone(UTC) == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert (row.a, row.c, row.d, row.e, row.f) == (
        True, datetime(2026, 1, 31, 10, 0, 0, 500000), date(2026, 1, 31), Decimal("1.25"), "7",
    )  # fmt: skip
    database.close()


def test_a_value_that_does_not_fit_is_named(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    database = new_source_database("sqlite", request, tmp_path)
    database.run("CREATE TABLE items (id INTEGER PRIMARY KEY, size INT)")
    database.insert([(1, "large")])
    values = {"url": database.table_url()}
    reader = SnapshotReader(parse_source_options(values), source_schema(values))
    (part,) = reader.partitions()
    with pytest.raises(Exception, match="column size: 'large' is no bigint"):
        list(reader.read(part))
    database.close()
