"""A query over a table is killed, with all its processes, at labelled moments, while others write; then compared.

The sink takes each batch once, as ours do. Of a growing column every row that was inserted must have come exactly
once; of change capture the changes, applied by key in the order in which they came, must give the table as it is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import PROJECT, WORKER_ENVIRONMENT
from tests.spark.moments import Moments

from .batch_files import rows_in
from .database_kinds import KINDS_SLOW_BUT_FOR_ONE
from .source_driver import AFTER_SINK, BEFORE_SINK, PLANNED, READING
from .source_tables import SourceDatabase, new_source_database

RUN_S_MAX = 180.0
pytestmark = pytest.mark.spark
LABEL_SETS = [
    pytest.param((AFTER_SINK,), id="one"),
    pytest.param((PLANNED, READING, BEFORE_SINK, AFTER_SINK, READING, PLANNED), id="all", marks=pytest.mark.slow),
]


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SourceDatabase]:
    found = new_source_database(request.param, request, tmp_path)
    found.run(f"CREATE TABLE items (id INTEGER PRIMARY KEY, version INTEGER, at {found.time_type})")
    yield found
    if found.kind == "postgresql":
        slots = "pg_replication_slots WHERE database = current_database()"
        found.run(f"SELECT pg_drop_replication_slot(slot_name) FROM {slots}")
    found.close()


class Query:
    """The program, its folder, and the moments at which it is killed."""

    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        self.folder = folder
        self.moments = Moments(folder / "moments")
        places = {"checkpoint": str(folder / "checkpoint"), "out": str(folder / "out")}
        self._plan = json.dumps({"options": options, "moments": str(folder / "moments"), **places})
        self._errors = folder / "errors"

    def _start(self) -> subprocess.Popen[bytes]:
        with self._errors.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.pipelines.relational.source_driver", self._plan],
                stdout=errors,
                stderr=errors,
                env={**os.environ, **WORKER_ENVIRONMENT},
                cwd=PROJECT,
                start_new_session=True,
            )

    def killed_at(self, label: str) -> None:
        self.moments.stop(label)
        process = self._start()
        try:
            self.moments.wait(label)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(RUN_S_MAX)
            self.moments.go(label)
            for left in self.moments.folder.glob(f"{label}-*"):
                left.unlink()

    def runs(self) -> None:
        process = self._start()
        try:
            assert process.wait(RUN_S_MAX) == 0, self._errors.read_text()[-3000:]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    def rows(self) -> list[dict[str, Any]]:
        return rows_in(self.folder / "out")


def now(database: SourceDatabase) -> Any:
    found = datetime.now(UTC)
    if database.kind == "sqlite":
        return found.isoformat(sep=" ")
    return found if database.kind == "postgresql" else found.replace(tzinfo=None)


@pytest.mark.parametrize("labels", LABEL_SETS)
@pytest.mark.parametrize("database", KINDS_SLOW_BUT_FOR_ONE, indirect=True)
def test_a_growing_column_over_kills(database: SourceDatabase, tmp_path: Path, labels: tuple[str, ...]) -> None:
    given = {"url": database.table_url(), "mode": "growing", "column": "at", "overlap": "1h", "rowsPerBatch": "300"}
    query = Query(tmp_path, given)
    for turn, label in enumerate(labels):
        database.insert([(turn * 1000 + number, 0, now(database)) for number in range(400)])
        query.killed_at(label)
        database.insert([(turn * 1000 + 500, 0, now(database))])
        query.runs()
    wanted = Counter(row[0] for row in database.run("SELECT id FROM items"))
    assert Counter(row["id"] for row in query.rows()) == wanted


@pytest.mark.postgres
@pytest.mark.parametrize("labels", LABEL_SETS)
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_change_capture_over_kills(database: SourceDatabase, tmp_path: Path, labels: tuple[str, ...]) -> None:
    database.run("CREATE PUBLICATION shop FOR TABLE items")
    slot = f"s_{database.url.rpartition('/')[2]}"
    given = {"url": database.table_url(), "mode": "changes", "slot": slot, "publication": "shop", "rowsPerBatch": "50"}
    query = Query(tmp_path, given)
    database.insert([(number, 0, now(database)) for number in range(500)])
    for turn, label in enumerate(labels):
        query.killed_at(label)
        first = 1000 + turn * 100
        database.insert([(number, 0, now(database)) for number in range(first, first + 90)])
        database.run("UPDATE items SET version = version + 1 WHERE id % 7 = ?", (turn,))
        database.run("DELETE FROM items WHERE id % 50 = ?", (turn,))
        database.run("UPDATE items SET id = id + 100000 WHERE id = ?", (first + 20,))
        if turn:
            query.runs()
            database.run("UPDATE items SET version = version + 1 WHERE id % 3 = ?", (turn % 3,))
    query.runs()
    assert applied(query.rows()) == {row[0]: row[1] for row in database.run("SELECT id, version FROM items")}
    changes = Counter((row["lsn"], row["sequence"]) for row in query.rows() if row["op"] != "read")
    assert max(changes.values()) == 1


def applied(rows: list[dict[str, Any]]) -> dict[int, int]:
    """A copy of the table, kept by key."""
    table: dict[int, int] = {}
    for row in rows:
        if row["deleted"]:
            table.pop(row["key"]["id"], None)
        else:
            table[row["key"]["id"]] = row["after"]["version"]
    return table
