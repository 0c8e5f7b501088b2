"""New and changed rows by a growing column, as a stream: `mode=growing`. The rules are in `window`; here is the SQL.

Spark runs the reader in a Python process that lives as long as the query. `latestOffset` looks at the table and plans;
`partitions` cuts a planned batch into tasks from its two offsets alone, so that a batch that is run again after a crash
reads the same range. The part below the windows is read by several tasks, both windows by one.

An offset in the checkpoint is {"position": "2026-01-31T12:00:00+00:00", "seen": "<digests>", "columns": "<digest>"}.
The digests are of whole rows; if the columns of the table change (`columns` differs), they cannot be compared, and the
rows of one window come once more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.growing_column import GrowingColumn, growing_column
from penstock.pipelines.relational.ranges import even_cuts
from penstock.pipelines.relational.selecting import ROWS_PER_FETCH, Condition, Select, column_expressions
from penstock.pipelines.relational.session import Session, open_session
from penstock.pipelines.relational.snapshot import PATIENCE_S, READ_ONLY
from penstock.pipelines.relational.source_options import STREAM_PARTITIONS, SourceOptions
from penstock.pipelines.relational.value_columns import record_batch
from penstock.pipelines.relational.window import (
    Digester,
    Digests,
    Interval,
    Offset,
    Position,
    WindowFilter,
    digests_as_text,
    digests_from_text,
    plan,
    window_of,
)

OffsetAsJson = dict[str, Any]


@dataclass
class WholePartition(InputPartition):
    """An interval of which every row is read."""

    column: GrowingColumn
    interval: Interval


@dataclass
class WindowPartition(InputPartition):
    """The windows of a batch, of which rows are chosen."""

    column: GrowingColumn
    intervals: tuple[Interval, ...]
    start: Offset
    end: Offset


class GrowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("penstock-table").option("mode", "growing")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._column: GrowingColumn | None = None
        self._latest: OffsetAsJson | None = None
        self._looked_s = -float("inf")
        self._is_available_now = False
        self._target: Position | None = None
        """where Trigger.AvailableNow ends"""
        self._is_done = False

    # ── where to begin, and how far to go ────────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> OffsetAsJson:
        return {"position": None, "seen": "", "columns": self._columns()}

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_available_now = True

    def latestOffset(self, start: OffsetAsJson, limit: ReadLimit) -> OffsetAsJson:
        if self._is_done or (not self._is_available_now and time.monotonic() - self._looked_s < self._options.poll_s):
            return start
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            found = self._look(session, start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        self._looked_s = time.monotonic() if found == start else -float("inf")
        self._latest = found
        return found

    def reportLatestOffset(self) -> OffsetAsJson | None:
        return None if self._latest is None else {"position": self._latest["position"]}

    def _look(self, session: Session, start: OffsetAsJson, rows_max: int | None) -> OffsetAsJson:
        column = self._growing(session)
        self._check_nulls(session, column)
        begin = self._from_json(start, column)
        high = self._next_position(session, column, begin.position, rows_max)
        if high is None:
            self._is_done = self._is_available_now
            return start
        self._is_done = self._is_available_now and high == self._target
        seen = self._seen(session, column, window_of(high, column.overlap))
        if high == begin.position and seen <= begin.seen:
            return start
        return {"position": column.as_text(high), "seen": digests_as_text(seen), "columns": self._columns()}

    def _next_position(
        self, session: Session, column: GrowingColumn, position: Position | None, rows_max: int | None
    ) -> Position | None:
        """The highest value within the limit; ties of the last one belong to it."""
        if self._is_available_now and self._target is None:
            self._target = self._highest(session, column, None)
        expression, above = column.expression(session), self._not_beyond(session, column, position)
        if rows_max is not None:
            tail = f"ORDER BY {expression} LIMIT 1 OFFSET {session.parameter}"
            rows = Select((expression,), above, tail, (rows_max - 1,)).run(session)
            if rows:
                return column.position(rows[0][0])
        found = Select((f"max({expression})",), above).run(session)[0][0]
        return position if found is None else column.position(found)

    def _highest(self, session: Session, column: GrowingColumn, position: Position | None) -> Position | None:
        expression = column.expression(session)
        found = Select((f"max({expression})",), column.above(session, position)).run(session)[0][0]
        return None if found is None else column.position(found)

    def _not_beyond(self, session: Session, column: GrowingColumn, position: Position | None) -> tuple[Condition, ...]:
        above = column.above(session, position)
        return above if self._target is None else (*above, *column.within(session, Interval(None, self._target)))

    def _seen(self, session: Session, column: GrowingColumn, window: Interval) -> Digests:
        digester, found = Digester(), set()
        session.run(READ_ONLY[session.address.kind])
        for rows in self._select(session, column, window).pieces(session):
            found |= {digester.digest(row) for row in rows}
            if len(found) > self._options.window_rows:
                raise RelationalError(
                    f"{session.address}: more than {self._options.window_rows} rows are within the overlap below "
                    f"{column.as_text(window.up_to)}, and which of them were read has to be remembered: choose a "
                    "smaller overlap, or raise the option windowRows (each row takes 12 bytes in every checkpoint)"
                )
        session.run("ROLLBACK")
        return frozenset(found)

    def _check_nulls(self, session: Session, column: GrowingColumn) -> None:
        if self._options.skips_nulls or not column.is_nullable:
            return
        if Select(("1",), (Condition(f"{column.expression(session)} IS NULL"),), "LIMIT 1").run(session):
            raise RelationalError(
                f"{session.address}: there are rows without a value (or, in SQLite, without a time it understands) in "
                f"{column.name}, which would never be read: fill them, or leave them out with the option nulls=skip"
            )

    # ── a planned batch ──────────────────────────────────────────────────────────────────────────────────────────

    def partitions(self, start: OffsetAsJson, end: OffsetAsJson) -> Sequence[InputPartition]:
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            column = self._growing(session)
            begin, finish = self._from_json(start, column), self._from_json(end, column)
            batch = plan(begin, finish, column.overlap)
            tasks: list[InputPartition] = []
            if batch.whole is not None:
                tasks += [WholePartition(column, each) for each in self._cut(session, column, batch.whole)]
            if batch.window:
                tasks.append(WindowPartition(column, batch.window, begin, finish))
            return tasks

    def _cut(self, session: Session, column: GrowingColumn, whole: Interval) -> list[Interval]:
        """Intervals of the same width. Their edges matter to nobody else, so it does not matter if they change."""
        expression = column.expression(session)
        low, high = Select((f"min({expression})", f"max({expression})"), column.within(session, whole)).run(session)[0]
        if low is None:
            return []
        cuts = even_cuts(column.position(low), column.position(high), self._options.partitions or STREAM_PARTITIONS)
        edges = [whole.above, *cuts, whole.up_to]
        return [Interval(above, up_to) for above, up_to in pairwise(edges) if above != up_to]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, WholePartition | WindowPartition)
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            session.run(READ_ONLY[session.address.kind])
            if isinstance(partition, WholePartition):
                for rows in self._select(session, partition.column, partition.interval).pieces(session):
                    yield record_batch([row[:-1] for row in rows], self._schema)
            else:
                yield from self._read_windows(session, partition)

    def _read_windows(self, session: Session, partition: WindowPartition) -> Iterator[pa.RecordBatch]:
        column, chosen = partition.column, []
        choose = WindowFilter(partition.start, partition.end, column.overlap)
        for interval in partition.intervals:
            for rows in self._select(session, column, interval).pieces(session):
                chosen += [row[:-1] for row in rows if choose.wants(column.position(row[-1]), row)]
                if len(chosen) >= ROWS_PER_FETCH:
                    yield record_batch(chosen, self._schema)
                    chosen = []
        if chosen:
            yield record_batch(chosen, self._schema)

    def _select(self, session: Session, column: GrowingColumn, interval: Interval) -> Select:
        """The columns, and last the value that is compared."""
        expressions = (*column_expressions(session, self._schema.fields), column.expression(session))
        return Select(expressions, column.within(session, interval))

    # ── offsets ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _growing(self, session: Session) -> GrowingColumn:
        if self._column is None:
            self._column = growing_column(session.shape(), self._options)
        return self._column

    def _columns(self) -> str:
        return digests_as_text(frozenset([Digester().digest([self._schema.simpleString()])]))

    def _from_json(self, offset: OffsetAsJson, column: GrowingColumn) -> Offset:
        text = offset.get("position")
        try:
            seen = digests_from_text(offset["seen"]) if offset.get("columns") == self._columns() else frozenset()
            return Offset(None if text is None else column.from_text(text), seen)
        except (ValueError, ArithmeticError, KeyError, TypeError):
            raise RelationalError(
                f"the checkpoint was not written for the column {column.name} of {self._options.address}: its position "
                f"is {str(text)[:100]!r}. Use the options it was written with, or another checkpoint"
            ) from None
