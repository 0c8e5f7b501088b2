"""Change capture from PostgreSQL as a stream: `mode=changes`.

The slot is made first and collects from then on; then the table is read in a snapshot, as rows with op `read`; then
changes come, transaction by transaction, in the order of their commits. Between two offsets lie exactly the
transactions whose commits lie between two places of the log, so a batch that is run again after a crash reads the
same changes. The slot is moved on only to where a batch has ended that Spark has committed; until then the server
keeps everything.

An offset is {"lsn": "0/15E2A08", "snapshot": …}: `wanted` before the snapshot was read; then what the snapshot has
seen, until the log is past it (see `change_rows`). After a crash within the snapshot another, later one is read; what
was changed between the two comes again as changes, which does no harm to whoever applies them by key.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.pipelines.relational.change_columns import ChangeBatches, key_names, row_type
from penstock.pipelines.relational.change_readiness import check_ready, check_start
from penstock.pipelines.relational.change_rows import READ, Change, ChangeReader, Snapshot
from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.pgoutput import Message, decode
from penstock.pipelines.relational.selecting import ROWS_PER_FETCH, fetch_pieces
from penstock.pipelines.relational.session import Session, open_session
from penstock.pipelines.relational.shared_snapshot import SharedPartition, SharedSnapshot, copy_rows
from penstock.pipelines.relational.slot import (
    PEEK,
    advance,
    ensure_slot,
    find_slot,
    flushed_lsn,
    lsn_as_text,
    lsn_from_text,
    mark_the_end,
    next_commit,
    peek_parameters,
    prepared,
    require_slot,
    wait_until_free,
)
from penstock.pipelines.relational.snapshot import PATIENCE_S
from penstock.pipelines.relational.source_options import CHANGES_PER_BATCH, STREAM_PARTITIONS, SourceOptions

IDLE_BYTES_MAX = 16 << 20
"""so much of the log is held back at most for a table that nobody changes while others are"""
WANTED = "wanted"
OffsetAsJson = dict[str, Any]


@dataclass
class ChangesPartition(InputPartition):
    """The transactions that commit between two places of the log."""

    table: tuple[str, str]
    start: int
    end: int
    snapshot: Snapshot | None


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("penstock-table").option("mode", "changes")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._held: SharedSnapshot | None = None
        self._latest: str | None = None
        self._looked_s = -float("inf")
        self._is_available_now = False
        self._target: int | None = None
        """where Trigger.AvailableNow ends"""

    # ── where to begin, and how far to go ────────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> OffsetAsJson:
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            check_start(session, self._options.publication, self._options.slot)
            return {"lsn": lsn_as_text(ensure_slot(session, self._options.slot)), "snapshot": WANTED}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_per_batch or CHANGES_PER_BATCH)

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_available_now = True

    def latestOffset(self, start: OffsetAsJson, limit: ReadLimit) -> OffsetAsJson:
        position = self._position(start)
        if start.get("snapshot") == WANTED:
            return {"lsn": start["lsn"], "snapshot": _snapshot_as_json(self._hold().seen)}
        self._let_go()
        if not self._is_available_now and time.monotonic() - self._looked_s < self._options.poll_s:
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else CHANGES_PER_BATCH
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            found = self._look(session, start, position, rows_max)
        self._looked_s = time.monotonic() if found == start else -float("inf")
        return found

    def reportLatestOffset(self) -> OffsetAsJson | None:
        return None if self._latest is None else {"lsn": self._latest}

    def _look(self, session: Session, start: OffsetAsJson, position: int, rows_max: int) -> OffsetAsJson:
        """`start` is where a batch has ended that is committed: the slot need not keep what lies before it."""
        advance(session, require_slot(session, self._options.slot, position), position)
        flushed = flushed_lsn(session)
        self._latest = lsn_as_text(flushed)
        if self._is_available_now and self._target is None:
            self._target = flushed
        if self._target is not None and position >= self._target:
            return start
        end = next_commit(session, self._options.slot, self._options.publication, rows_max, self._target)
        if end is None or end <= position:
            end = mark_the_end(session) if flushed - position > IDLE_BYTES_MAX else None
        return start if end is None else _next_offset(start, end)

    def commit(self, end: OffsetAsJson) -> None:
        position = self._position(end)
        if end.get("snapshot") == WANTED:
            return
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            slot = find_slot(session, self._options.slot)
            if slot is not None:
                advance(session, slot, position)

    def stop(self) -> None:
        self._let_go()

    # ── a planned batch ──────────────────────────────────────────────────────────────────────────────────────────

    def partitions(self, start: OffsetAsJson, end: OffsetAsJson) -> Sequence[InputPartition]:
        position = self._position(start)
        if start.get("snapshot") == WANTED and end.get("snapshot") != WANTED:
            return self._hold().partitions(self._options.partitions or STREAM_PARTITIONS, position)
        if start == end:
            return []
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            table = check_ready(session, self._options.publication)
            require_slot(session, self._options.slot, position)
        return [ChangesPartition(table, position, self._position(end), _snapshot_from_json(start.get("snapshot")))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches = ChangeBatches(self._schema)
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            prepared(session)
            if isinstance(partition, SharedPartition):
                changes = self._read_snapshot(session, partition)
            else:
                assert isinstance(partition, ChangesPartition)
                changes = self._read_changes(session, partition)
            while some := list(islice(changes, ROWS_PER_FETCH)):
                yield batches.batch(some)

    def _read_snapshot(self, session: Session, partition: SharedPartition) -> Iterator[Change]:
        names, key = row_type(self._schema).names, key_names(self._schema)
        taken_at = datetime.fromisoformat(partition.taken_at)
        for row in copy_rows(session, names, partition):
            after = dict(zip(names, row, strict=True))
            yield Change(READ, {name: after[name] for name in key}, None, after, (), partition.lsn, 0, None, taken_at)

    def _read_changes(self, session: Session, partition: ChangesPartition) -> Iterator[Change]:
        wait_until_free(session, self._options.slot)
        key = key_names(self._schema)
        reader = ChangeReader(partition.table, key, partition.start, partition.end, partition.snapshot)
        return reader.changes(self._messages(session, partition.end))

    def _messages(self, session: Session, end: int) -> Iterator[Message]:
        session.run("BEGIN READ ONLY")
        parameters = peek_parameters(self._options.slot, end, None, self._options.publication)
        for rows in fetch_pieces(session, f"SELECT data FROM {PEEK}", parameters, binary=True):
            for (data,) in rows:
                yield decode(data)

    # ── the snapshot, and offsets ────────────────────────────────────────────────────────────────────────────────

    def _hold(self) -> SharedSnapshot:
        if self._held is None:
            self._held = SharedSnapshot(self._options.address)
        return self._held

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def _position(self, offset: OffsetAsJson) -> int:
        try:
            return lsn_from_text(offset["lsn"])
        except (KeyError, ValueError, TypeError, AttributeError):
            raise RelationalError(
                f"the checkpoint was not written by change capture of {self._options.address}: {str(offset)[:100]}"
            ) from None


def _next_offset(start: OffsetAsJson, end: int) -> OffsetAsJson:
    """What the snapshot has seen is forgotten when the log is past it."""
    snapshot = _snapshot_from_json(start.get("snapshot"))
    if snapshot is None or end >= snapshot.lsn:
        return {"lsn": lsn_as_text(end)}
    return {"lsn": lsn_as_text(end), "snapshot": start["snapshot"]}


def _snapshot_as_json(snapshot: Snapshot) -> dict[str, str]:
    return {"seen": snapshot.text, "lsn": lsn_as_text(snapshot.lsn)}


def _snapshot_from_json(value: Any) -> Snapshot | None:
    return Snapshot(value["seen"], lsn_from_text(value["lsn"])) if isinstance(value, dict) else None
