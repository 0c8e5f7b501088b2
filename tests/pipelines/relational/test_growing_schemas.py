"""A table whose columns change while it is followed by a growing column: what the guide says happens then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.growing import GrowingReader
from penstock.pipelines.relational.source_options import parse_source_options
from penstock.pipelines.relational.table_source import source_schema

from .database_kinds import KINDS
from .following import Following
from .source_tables import SourceDatabase, new_source_database


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SourceDatabase]:
    found = new_source_database(request.param, request, tmp_path)
    found.run("CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(20), amount VARCHAR(20))")
    found.insert([(1, "a", "10"), (2, "b", "20")])
    yield found
    found.close()


def following(database: SourceDatabase, at: dict[str, Any] | None = None) -> Following:
    return Following(database, at, column="id")


def test_a_column_that_is_added(database: SourceDatabase) -> None:
    running = following(database)
    assert len(running.rows()) == 2
    database.run("ALTER TABLE items ADD COLUMN color VARCHAR(20) DEFAULT 'red'")
    database.run("INSERT INTO items VALUES (3, 'c', '30', 'blue')")
    assert running.rows() == [{"id": 3, "name": "c", "amount": "30"}]
    restarted = following(database, running.at)
    assert sorted((row["id"], row["color"]) for row in restarted.rows()) == [(1, "red"), (2, "red"), (3, "blue")]
    assert restarted.rows() == []


def test_a_column_that_is_dropped(database: SourceDatabase) -> None:
    """An error, never rows with something else in its place; and what came meanwhile comes after the restart."""
    running = following(database)
    assert len(running.rows()) == 2
    database.run("ALTER TABLE items DROP COLUMN name")
    database.run("INSERT INTO items VALUES (3, '30')")
    for _ in range(2):
        with pytest.raises(RelationalError, match="name"):
            running.rows()
    restarted = following(database, running.at)
    assert restarted.rows() == [{"id": each, "amount": f"{each}0"} for each in (1, 2, 3)]
    assert restarted.rows() == []


def test_the_growing_column_is_dropped(database: SourceDatabase) -> None:
    database.run("CREATE TABLE other (key_of INTEGER PRIMARY KEY, id INTEGER NOT NULL)")
    database.run("INSERT INTO other VALUES (1, 1)")
    values = {"url": database.table_url("other"), "mode": "growing", "column": "id", "pollInterval": "0s"}
    reader = GrowingReader(parse_source_options(values), source_schema(values))
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    database.run("ALTER TABLE other DROP COLUMN id")
    with pytest.raises(RelationalError, match="id"):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(RelationalError, match=r"option column: .* has no column 'id'; it has key_of"):
        source_schema(values)


def test_a_type_that_changes(database: SourceDatabase) -> None:
    running = following(database)
    assert len(running.rows()) == 2
    retype(database, "amount", "INTEGER")
    database.run("INSERT INTO items VALUES (3, 'c', 30)")
    assert [row["amount"] for row in running.rows() if row["id"] == 3] == ["30"]
    restarted = following(database, running.at)
    assert [(row["id"], row["amount"]) for row in restarted.rows()] == [(1, 10), (2, 20), (3, 30)]
    retype(database, "amount", "VARCHAR(20)")
    database.run("INSERT INTO items VALUES (4, 'd', 'many')")
    with pytest.raises(RelationalError, match=r"column amount.*many"):
        restarted.rows()
    again = following(database, restarted.at)
    assert [row["amount"] for row in again.rows()] == ["10", "20", "30", "many"]


def retype(database: SourceDatabase, column: str, declared: str) -> None:
    """SQLite cannot change a column, so there the table is made anew, as its own documentation advises."""
    if database.kind == "postgresql":
        database.run(f"ALTER TABLE items ALTER COLUMN {column} TYPE {declared} USING {column}::{declared}")
    elif database.kind == "mysql":
        database.run(f"ALTER TABLE items MODIFY {column} {declared}")
    else:
        database.run(f"CREATE TABLE anew (id INTEGER PRIMARY KEY, name VARCHAR(20), {column} {declared})")
        database.run("INSERT INTO anew SELECT * FROM items")
        database.run("DROP TABLE items")
        database.run("ALTER TABLE anew RENAME TO items")
