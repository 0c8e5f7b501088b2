"""New and changed rows by a growing column, through Spark, while others write and commit late."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.relational.data_source import RelationalTable
from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.growing import GrowingReader
from penstock.pipelines.relational.source_options import parse_source_options
from penstock.pipelines.relational.table_source import source_schema

from .batch_files import into_files, rows_in
from .database_kinds import KINDS
from .source_tables import SourceDatabase, new_source_database

WAIT_S_MAX = 90.0
POLL_S = 0.05


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SourceDatabase]:
    found = new_source_database(request.param, request, tmp_path)
    found.run(f"CREATE TABLE items (id INTEGER PRIMARY KEY, version INTEGER, at {found.time_type})")
    yield found
    found.close()


def stream(spark: Any, database: SourceDatabase, folder: Path, **options: str) -> Any:
    spark.dataSource.register(RelationalTable)
    given = {"url": database.table_url(), "mode": "growing", "pollInterval": "0s", **options}
    frame = spark.readStream.format("penstock-table").options(**given).load()
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.foreachBatch(into_files(folder / "out"))


def run_once(spark: Any, database: SourceDatabase, folder: Path, **options: str) -> list[dict[str, Any]]:
    """Everything there is now; the rows that came in this run."""
    before = len(rows_in(folder / "out"))
    stream(spark, database, folder, **options).trigger(availableNow=True).start().awaitTermination()
    return rows_in(folder / "out")[before:]


def moment(database: SourceDatabase, seconds_ago: float = 0) -> Any:
    """A time as the driver takes it."""
    found = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    if database.kind == "sqlite":
        return found.isoformat(sep=" ")
    return found if database.kind == "postgresql" else found.replace(tzinfo=None)


@pytest.mark.spark
@pytest.mark.parametrize("database", KINDS, indirect=True)
def test_a_column_of_times_over_restarts(spark: Any, database: SourceDatabase, tmp_path: Path) -> None:
    options = {"column": "at", "overlap": "1 hour"}
    assert run_once(spark, database, tmp_path, **options) == []
    database.insert([(number, 0, moment(database, 86_400 * 30 - number)) for number in range(1, 1001)])
    database.insert([(2000, 0, moment(database, 60))])
    first = run_once(spark, database, tmp_path, **options)
    assert sorted(row["id"] for row in first) == [*range(1, 1001), 2000]
    database.insert([(2001, 0, moment(database, 1800))])  # late, within the overlap
    database.run("UPDATE items SET version = 1, at = ? WHERE id = 5", (moment(database),))
    database.insert([(2002, 0, moment(database, -3600))])  # ahead of the clock: it waits
    second = run_once(spark, database, tmp_path, **options)
    assert sorted((row["id"], row["version"]) for row in second) == [(5, 1), (2001, 0)]
    database.run("UPDATE items SET version = 2 WHERE id = 5")  # the same time: seen, because it is in the window
    third = run_once(spark, database, tmp_path, **options)
    assert [(row["id"], row["version"]) for row in third] == [(5, 2)]
    assert run_once(spark, database, tmp_path, **options) == []


@pytest.mark.spark
@pytest.mark.parametrize("database", KINDS, indirect=True)
def test_a_column_of_numbers_in_limited_batches(spark: Any, database: SourceDatabase, tmp_path: Path) -> None:
    options = {"column": "id", "overlap": "10", "rowsPerBatch": "40"}
    database.insert([(number, 0, moment(database)) for number in range(1, 101) if number != 95])
    run_once(spark, database, tmp_path, **options)
    files = [len(file.read_text().splitlines()) for file in sorted((tmp_path / "out").glob("*.json"))]
    assert files == [40, 40, 19]
    database.insert([(95, 0, moment(database)), (101, 0, moment(database))])
    assert sorted(row["id"] for row in run_once(spark, database, tmp_path, **options)) == [95, 101]


@pytest.mark.spark
@pytest.mark.parametrize("database", KINDS[:2], indirect=True)
def test_transactions_that_commit_late(spark: Any, database: SourceDatabase, tmp_path: Path) -> None:
    late = [database.connect() for _ in range(3)]
    got: list[int] = []
    for number, each in enumerate(late):
        database.run("BEGIN", connection=each)
        database.insert([(number, 0, moment(database))], connection=each)
        database.insert([(100 + number, 0, moment(database))])
        got += [row["id"] for row in run_once(spark, database, tmp_path, column="at", overlap="10 minutes")]
    assert got == [100, 101, 102]
    for each in reversed(late):
        database.run("COMMIT", connection=each)
        got += [row["id"] for row in run_once(spark, database, tmp_path, column="at", overlap="10 minutes")]
        each.close()
    assert got == [100, 101, 102, 2, 1, 0]


@pytest.mark.spark
@pytest.mark.parametrize("database", KINDS, indirect=True)
def test_writers_at_work_while_it_is_read(spark: Any, database: SourceDatabase, tmp_path: Path) -> None:
    """Each writer inserts rows and changes rows of its own in transactions that overlap those of the others."""
    query = stream(spark, database, tmp_path, column="at", overlap="5 minutes", rowsPerBatch="7").start()
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            connection = database.connect()
            for turn in range(25):
                number = writer * 1000 + turn
                database.run("BEGIN", connection=connection)
                database.insert([(number, 0, moment(database))], connection=connection)
                if turn % 3 == 0:
                    changed = writer * 1000 + turn // 2
                    change = "UPDATE items SET version = version + 1, at = ? WHERE id = ?"
                    database.run(change, (moment(database), changed), connection)
                database.run("COMMIT", connection=connection)
            connection.close()
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=[each]) for each in range(3)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert not failures
    wanted = {tuple(row) for row in database.run("SELECT id, version FROM items")}
    until_s = time.monotonic() + WAIT_S_MAX
    while not wanted <= {(row["id"], row["version"]) for row in rows_in(tmp_path / "out")}:
        assert query.exception() is None and time.monotonic() < until_s
        time.sleep(POLL_S)
    query.stop()
    counts = Counter((row["id"], row["version"]) for row in rows_in(tmp_path / "out"))
    assert max(counts.values()) == 1
    assert run_once(spark, database, tmp_path, column="at", overlap="5 minutes") == []


@pytest.mark.spark
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_column_that_was_added_brings_the_window_once_more(
    spark: Any, database: SourceDatabase, tmp_path: Path
) -> None:
    options = {"column": "at", "overlap": "1 hour"}
    database.insert([(1, 0, moment(database, 7200)), (2, 0, moment(database))])
    assert len(run_once(spark, database, tmp_path, **options)) == 2
    database.run("ALTER TABLE items ADD COLUMN color TEXT DEFAULT 'red'")
    assert [(row["id"], row["color"]) for row in run_once(spark, database, tmp_path, **options)] == [(2, "red")]
    assert run_once(spark, database, tmp_path, **options) == []


def reader(database: SourceDatabase, **options: str) -> GrowingReader:
    values = {"url": database.table_url(), "mode": "growing", **options}
    return GrowingReader(parse_source_options(values), source_schema(values))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": "when"}, "option column: .* has no column 'when'; it has id, version, at"),
        ({"column": "at"}, "rows without a value .* in at.*nulls=skip"),
        ({"column": "id", "overlap": "5 minutes"}, "option overlap: is a whole number"),
        ({"column": "id", "windowRows": "2"}, "more than 2 rows are within the overlap below 5.*smaller overlap"),
        ({"column": "id", "slot": "x"}, "option slot: belongs to the mode changes"),
        ({"column": "id", "colum": "x"}, "option colum: is unknown; did you mean column"),
        ({}, "option column: is needed"),
    ],
)
def test_mistakes_are_named(database: SourceDatabase, options: dict[str, str], message: str) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    database.insert([(number, 0, None) for number in range(6)])
    with pytest.raises(RelationalError, match=message):
        each = reader(database, **options)
        each.latestOffset(each.initialOffset(), ReadAllAvailable())


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_checkpoint_of_another_column_is_refused(database: SourceDatabase) -> None:
    each = reader(database, column="id")
    start = {**each.initialOffset(), "position": "2026-01-01T00:00:00+00:00"}
    with pytest.raises(RelationalError, match="the checkpoint was not written for the column id"):
        each.partitions(start, start)
