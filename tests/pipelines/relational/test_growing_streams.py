"""New and changed rows by a growing column, through Spark, while others write and commit late."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.relational.data_source import RelationalTable
from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.growing import GrowingReader
from penstock.pipelines.relational.source_options import parse_source_options
from penstock.pipelines.relational.table_source import source_schema

from .batch_files import into_files, rows_in
from .database_kinds import KINDS, KINDS_SLOW_BUT_FOR_ONE
from .following import Following
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


RunOnce = Callable[..., list[dict[str, Any]]]
BY_READER, BY_SPARK = "reader", "spark"
#: Databases differ in what the reader asks them, Spark does not: through Spark with one, with others in the long form.
WAYS = [
    *(pytest.param(kind.values[0], BY_READER, marks=kind.marks) for kind in KINDS),
    pytest.param("postgresql", BY_SPARK, marks=[pytest.mark.postgres, pytest.mark.spark]),
    pytest.param("mysql", BY_SPARK, marks=[pytest.mark.mysql, pytest.mark.spark, pytest.mark.slow]),
    pytest.param("sqlite", BY_SPARK, marks=[pytest.mark.spark, pytest.mark.slow]),
]
of_all_kinds = pytest.mark.parametrize(("database", "way"), WAYS, indirect=["database"])


@pytest.fixture
def read_now(request: pytest.FixtureRequest, database: SourceDatabase, way: str, tmp_path: Path) -> RunOnce:
    """Runs a query to the end of what is there, from where the one before ended; the rows that came."""
    if way == BY_SPARK:
        return partial(run_once, request.getfixturevalue("spark"), database, tmp_path)
    at: list[Any] = [None]

    def read(**options: str) -> list[dict[str, Any]]:
        run = Following(database, at[0], **options)
        rows = run.all_rows()
        at[0] = run.at
        return rows

    return read


@of_all_kinds
def test_a_column_of_times_over_restarts(database: SourceDatabase, read_now: RunOnce) -> None:
    read = partial(read_now, column="at", overlap="1 hour")
    assert read() == []
    database.insert([(number, 0, moment(database, 86_400 * 30 - number)) for number in range(1, 1001)])
    database.insert([(2000, 0, moment(database, 60))])
    assert sorted(row["id"] for row in read()) == [*range(1, 1001), 2000]
    database.insert([(2001, 0, moment(database, 1800))])  # late, within the overlap
    database.run("UPDATE items SET version = 1, at = ? WHERE id = 5", (moment(database),))
    database.insert([(2002, 0, moment(database, -3600))])  # ahead of the clock: it waits
    assert sorted((row["id"], row["version"]) for row in read()) == [(5, 1), (2001, 0)]
    database.run("UPDATE items SET version = 2 WHERE id = 5")  # the same time: seen, because it is in the window
    assert [(row["id"], row["version"]) for row in read()] == [(5, 2)]
    assert read() == []


@of_all_kinds
def test_a_column_of_numbers_in_limited_batches(database: SourceDatabase, read_now: RunOnce, tmp_path: Path) -> None:
    read = partial(read_now, column="id", overlap="10", rowsPerBatch="40")
    database.insert([(number, 0, moment(database)) for number in range(1, 101) if number != 95])
    assert len(read()) == 99
    if files := sorted((tmp_path / "out").glob("*.json")):  # of Spark's batches
        assert [len(file.read_text().splitlines()) for file in files] == [40, 40, 19]
    database.insert([(95, 0, moment(database)), (101, 0, moment(database))])
    assert sorted(row["id"] for row in read()) == [95, 101]


@pytest.mark.parametrize(
    ("database", "way"),
    [each for each in WAYS if each.values[0] != "sqlite"],  # which lets nobody commit late
    indirect=["database"],
)
def test_transactions_that_commit_late(database: SourceDatabase, read_now: RunOnce, way: str) -> None:
    read = partial(read_now, column="at", overlap="10 minutes")
    late = [database.connect() for _ in range(3 if way == BY_READER else 1)]
    got: list[int] = []
    for number, each in enumerate(late):
        database.run("BEGIN", connection=each)
        database.insert([(number, 0, moment(database))], connection=each)
        database.insert([(100 + number, 0, moment(database))])
        got += [row["id"] for row in read()]
    for each in reversed(late):
        database.run("COMMIT", connection=each)
        got += [row["id"] for row in read()]
        each.close()
    numbers = range(len(late))
    assert got == [*(100 + number for number in numbers), *reversed(numbers)]


@pytest.mark.spark
@pytest.mark.parametrize("database", KINDS_SLOW_BUT_FOR_ONE, indirect=True)
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
