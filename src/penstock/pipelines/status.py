"""What a pipeline is doing, for everybody who asks: one small JSON file that it writes anew while it runs.

The file is `<state folder>/<pipeline>/status.json`. It is replaced as a whole, so a reader never sees half of it. The
process holds a lock on `<state folder>/<pipeline>/lock` for as long as it lives: a file that says "running" without a
process behind it is told as `lost`, and a second run of the same pipeline is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TextIO

STATE_FOLDER_VARIABLE = "PENSTOCK_PIPELINE_STATE"
STATE_FOLDER = ".penstock"
STATUS_FILE = "status.json"
LOCK_FILE = "lock"
LOCK_S_MAX = 1.0
LOCK_STEP_S = 0.05


class State(StrEnum):
    """How far a pipeline is."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    """`run --once` has processed what was there"""
    FAILED = "failed"
    STOPPED = "stopped"
    """somebody asked it to end"""
    LOST = "lost"
    """its process is gone without a word; never written, only told"""


ALIVE = (State.STARTING, State.RUNNING)


class AlreadyRunning(Exception):
    """The pipeline runs in another process."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source of a query: how fast it is read, and how much waits."""

    name: str
    rows_per_s: float = 0.0
    rows_in_batch: int = 0
    lag_rows: int | None = None
    """records that wait in the topics; None: the source does not say"""
    held_back_bytes: int | None = None
    """what a database keeps for a replication slot; None: there is no slot"""


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One streaming query: that of a sink, or that of the bad records of a source."""

    name: str
    kind: str = "sink"
    """sink or bad records"""
    target: str = ""
    batch_id: int = -1
    """the last batch that was finished; -1: none yet"""
    rows_per_s: float = 0.0
    batch_ms: int = 0
    rows_total: int = 0
    """rows read since the run began"""
    bad_records: int = 0
    """records that could not be read, since the run began"""
    state_rows: int = 0
    watermark: str | None = None
    is_active: bool = True
    sources: tuple[SourceStatus, ...] = ()
    last_error: str | None = None

    @property
    def lag_rows(self) -> int | None:
        """What waits in all its sources that say so."""
        known = [source.lag_rows for source in self.sources if source.lag_rows is not None]
        return sum(known) if known else None

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        sources = tuple(SourceStatus(**each) for each in document.get("sources", ()))
        return cls(**{**document, "sources": sources})


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """See the head of this file. Times are seconds since 1970."""

    name: str
    state: State
    file: str | None = None
    pid: int = field(default_factory=os.getpid)
    since_s: float = 0.0
    """when this run began"""
    changed_s: float = 0.0
    """when this was written"""
    queries: tuple[QueryStatus, ...] = ()
    last_error: str | None = None

    @property
    def is_alive(self) -> bool:
        return self.state in ALIVE

    @property
    def rows_per_s(self) -> float:
        return sum(query.rows_per_s for query in self.queries if query.kind == "sink")

    @property
    def lag_rows(self) -> int | None:
        """What waits for the query that is furthest behind."""
        return max((query.lag_rows for query in self.queries if query.lag_rows is not None), default=None)

    @property
    def bad_records(self) -> int:
        return sum(query.bad_records for query in self.queries)

    def to_document(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """ValueError if it is no status."""
        try:
            queries = tuple(QueryStatus.from_document(each) for each in document.get("queries", ()))
            return cls(**{**document, "state": State(document["state"]), "queries": queries})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no status of a pipeline: {error}") from error


def default_state_folder(beside: Path) -> Path:
    """Where pipelines of files in this folder keep their state, unless the environment says otherwise."""
    given = os.environ.get(STATE_FOLDER_VARIABLE)
    return Path(given) if given else beside / STATE_FOLDER


def write_status(folder: Path, status: PipelineStatus) -> None:
    """Replaces the status of its pipeline."""
    place = folder / status.name
    place.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{STATUS_FILE}.", dir=place)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(status.to_document(), file)
        os.replace(temporary, place / STATUS_FILE)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_status(folder: Path, name: str) -> PipelineStatus | None:
    """The status of one pipeline; None if it never ran here. ValueError if the file is damaged."""
    path = folder / name / STATUS_FILE
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = PipelineStatus.from_document(json.loads(text))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return replace(status, state=State.LOST) if status.is_alive and not is_running(folder, name) else status


def all_statuses(folder: Path) -> list[PipelineStatus]:
    """The status of every pipeline that ever ran with this state folder, by name; damaged files are left out."""
    statuses = []
    for path in sorted(folder.glob(f"*/{STATUS_FILE}")):
        try:
            status = read_status(folder, path.parent.name)
        except ValueError:
            continue
        if status is not None:
            statuses.append(status)
    return statuses


def is_running(folder: Path, name: str) -> bool:
    """Whether a living process holds the lock of this pipeline."""
    try:
        with (folder / name / LOCK_FILE).open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


@contextmanager
def held_lock(folder: Path, name: str) -> Iterator[None]:
    """Makes this process the only one that runs the pipeline. AlreadyRunning if another one does."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    with (place / LOCK_FILE).open("a") as file:
        if not _try_to_lock(file):
            raise AlreadyRunning(f"the pipeline {name} is running already, with the state folder {folder}")
        yield


def _try_to_lock(file: TextIO) -> bool:
    """Tries for a moment: those who only ask whether it runs hold the lock while they look."""
    deadline_s = time.monotonic() + LOCK_S_MAX
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(LOCK_STEP_S)
