"""Moments in the life of a batch at which a test can hold it up, and kill somebody.

`MomentsSource` is the data source with writers that come by labelled moments. At each of them the process looks into a
folder: if the test has put a *stop* for that label and batch there, it says that it has arrived (with its process id)
and waits until it may go. Both sides use files only, so that it does not matter which process is where, or dies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.data_source import PenstockDataSource
from penstock.spark.sink import PenstockStreamWriter

FOLDER = "moments"
TASK_RUNNING = "task-running"
TASK_PREPARED = "task-prepared"
BEFORE_COMMIT = "before-commit"
AFTER_COMMIT = "after-commit"
LABELS = (TASK_RUNNING, TASK_PREPARED, BEFORE_COMMIT, AFTER_COMMIT)
WAIT_S_MAX = 120.0
POLL_S = 0.01


class Moments:
    """The test's side and the writers' side of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _file(self, label: str, batch: int, kind: str) -> Path:
        return self.folder / f"{label}-{batch}.{kind}"

    # ── the test's side ──────────────────────────────────────────────────────────────────────────────────────────

    def stop(self, label: str, batch: int = 0) -> None:
        """The next one that comes by has to wait there; others after it go on."""
        self._file(label, batch, "stop").touch()

    def go(self, label: str, batch: int = 0) -> None:
        """Whoever waits there goes on."""
        self._file(label, batch, "stop").unlink(missing_ok=True)
        self._file(label, batch, "taken").unlink(missing_ok=True)

    def wait(self, label: str, batch: int = 0) -> int:
        """Wait until somebody is there; returns the id of that process."""
        until_s, reached = time.monotonic() + WAIT_S_MAX, self._file(label, batch, "reached")
        while not reached.exists():
            assert time.monotonic() < until_s, f"nobody came by {label} of batch {batch}"
            time.sleep(POLL_S)
        return int(reached.read_text())

    # ── the writers' side ────────────────────────────────────────────────────────────────────────────────────────

    def come_by(self, label: str, batch: int) -> None:
        """Wait here if the test wants it, and if nobody else does already."""
        taken = self._file(label, batch, "taken")
        try:
            self._file(label, batch, "stop").rename(taken)
        except FileNotFoundError:
            return
        arrived = self._file(label, batch, "arriving")
        arrived.write_text(str(os.getpid()))
        arrived.rename(self._file(label, batch, "reached"))
        until_s = time.monotonic() + WAIT_S_MAX
        while taken.exists() and time.monotonic() < until_s:
            time.sleep(POLL_S)


class MomentsWriter(PenstockStreamWriter):
    """The writer of a stream, which comes by all moments."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        others = dict(options)
        self.moments = Moments(Path(others.pop(FOLDER)))
        super().__init__(others, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        number = self._batch().number
        report = super().write(self._watched(iterator, number))
        self.moments.come_by(TASK_PREPARED, number)
        return report

    def _watched(self, rows: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield batch
            self.moments.come_by(TASK_RUNNING, number)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.moments.come_by(BEFORE_COMMIT, batchId)
        super().commit(messages, batchId)
        self.moments.come_by(AFTER_COMMIT, batchId)


class MomentsSource(PenstockDataSource):
    """`format("penstock-moments")` with the option `moments`: the folder."""

    @classmethod
    def name(cls) -> str:
        return "penstock-moments"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return MomentsWriter(dict(self.options), schema, overwrite)
