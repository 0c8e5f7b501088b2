"""Merging: what the driver does when all tasks have staged their rows. One transaction takes the rows of all staging
tables into the target and records the batch; either all of it happens or nothing.

If the database goes away in the middle, the whole is tried again for a while: the record says whether the commit had
happened. Staging tables are dropped afterwards, those that dead attempts left behind as well.

Of several rows with the same key, the one with the highest `orderBy` counts. Without that option it is the last one of
its task; rows of one key in several tasks have no order then, which is an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from penstock.pipelines.relational.dialect import Dialect
from penstock.pipelines.relational.failures import DatabaseAway, RelationalError, TryAgain
from penstock.pipelines.relational.session import Session, open_session
from penstock.pipelines.relational.staging import Staged, drop_stages, leftovers, stage_table
from penstock.pipelines.relational.table_batch import (
    TableBatch,
    forget,
    is_merged,
    lock_last,
    make_batches_table,
    record,
)
from penstock.pipelines.relational.table_sink_options import INSERT
from penstock.pipelines.relational.target import Target

PAUSE_S = 0.5
_log = logging.getLogger(__name__)


def merge_batch(target: Target, batch: TableBatch, staged: Sequence[Staged]) -> None:
    """Take all staged rows into the target, once; RelationalError."""
    until_s = time.monotonic() + target.options.retry_s
    is_first = True
    while True:
        try:
            with open_session(target.options.address) as session:
                is_repeated = _merge(session, target, batch, staged)
                if is_repeated and is_first and not batch.is_forgotten:
                    _log.warning("%s had been merged already: what was staged now does not count", batch)
                _clear_up(session, batch)
            return
        except (DatabaseAway, TryAgain) as error:
            if time.monotonic() + PAUSE_S > until_s:
                raise
            _log.warning("%s is tried again: %s", batch, error)
            is_first = False
            time.sleep(PAUSE_S)


def abort_batch(target: Target, stages: Sequence[str]) -> None:
    """Nothing was merged; drop what was staged."""
    with open_session(target.options.address) as session:
        drop_stages(session, list(stages))


def _merge(session: Session, target: Target, batch: TableBatch, staged: Sequence[Staged]) -> bool:
    """Whether it had been merged before."""
    make_batches_table(session)
    with session.transaction():
        if is_merged(batch, lock_last(session, batch), str(session.address)):
            return True
        filled = {stage_table(session, each.stage): each.rows for each in staged if each.stage is not None}
        _check_counts(session, batch, filled)
        merging = Merging(session.dialect, target, list(filled))
        if merging.may_clash:
            _check_clashes(session, target, merging)
        for statement in merging.statements(sum(each.deletes for each in staged)):
            session.run(statement)
        record(session, batch, datetime.now(UTC).isoformat(timespec="seconds"))
    return False


def _check_counts(session: Session, batch: TableBatch, filled: Mapping[str, int]) -> None:
    """A crash of PostgreSQL empties staging tables, which are not logged: then the rows would be lost."""
    for stage, rows in filled.items():
        found = session.run(f"SELECT count(*) FROM {stage}")[0][0]
        if found != rows:
            raise RelationalError(
                f"{session.address.database_shown} has lost rows that were staged for {batch} ({found} of {rows} are "
                "there), as after a crash; nothing of it was written. Start it again: it is staged anew"
            )


def _check_clashes(session: Session, target: Target, merging: Merging) -> None:
    if found := session.run(merging.clashes()):
        names, values = ", ".join(target.options.keys), ", ".join(map(str, found[0]))[:200]
        raise RelationalError(
            f"several tasks have rows with the key ({names}) = ({values}), and nothing says "
            "which of them is the last: name a column that grows, such as a time or an offset, with the option orderBy"
        )


def _clear_up(session: Session, batch: TableBatch) -> None:
    """What cannot be dropped now is dropped after a later batch."""
    try:
        drop_stages(session, leftovers(session, batch))
        if batch.is_forgotten:
            forget(session, batch)
    except RelationalError as error:
        _log.warning("staging tables stay for a while: %s", error)


class Merging:
    """The statements that merge. `stages` are quoted."""

    def __init__(self, dialect: Dialect, target: Target, stages: Sequence[str]) -> None:
        self._target = target
        self._stages = stages
        self._quote = dialect.quote
        self._table = dialect.table(target.options.address)
        self._kind = target.options.address.kind

    @property
    def may_clash(self) -> bool:
        """Whether rows of one key in several tasks would have no order."""
        options = self._target.options
        return options.mode != INSERT and options.order_by is None and len(self._stages) > 1

    def statements(self, deletes: int) -> list[str]:
        """In this order, in one transaction."""
        if not self._stages:
            return []
        if self._target.options.mode == INSERT:
            return [self._insert(stage) for stage in self._stages]
        statements = [self._delete()] if deletes else []
        return statements if self._target.options.mode == "delete" else [*statements, self._upsert()]

    def clashes(self) -> str:
        """One key that several tasks have."""
        keys = self._places(self._target.keys)
        return f"SELECT {keys} FROM ({self._all()}) a GROUP BY {keys} HAVING min(t) <> max(t) LIMIT 1"

    def _names(self, places: Sequence[int]) -> list[str]:
        return [self._quote(self._target.columns[place].name) for place in places]

    @staticmethod
    def _places(places: Sequence[int], of: str = "") -> str:
        return ", ".join(f"{of}c{place}" for place in places)

    def _insert(self, stage: str) -> str:
        written = self._target.written
        return (
            f"INSERT INTO {self._table} ({', '.join(self._names(written))}) SELECT {self._places(written)} FROM {stage}"
        )

    def _all(self) -> str:
        """The rows of all tasks, with the number of the task."""
        return " UNION ALL ".join(f"SELECT s.*, {task} AS t FROM {stage} s" for task, stage in enumerate(self._stages))

    def _last(self) -> str:
        """For each key the row that counts."""
        order = []
        if self._target.options.order_by is not None:
            place = self._target.place(self._target.options.order_by)
            order = [f"(c{place} IS NULL)", f"c{place} DESC"]
        ranked = (
            f"SELECT a.*, row_number() OVER (PARTITION BY {self._places(self._target.keys)} "
            f"ORDER BY {', '.join([*order, 't DESC', 'n DESC'])}) AS r FROM ({self._all()}) a"
        )
        return f"SELECT * FROM ({ranked}) b WHERE r = 1"

    def _delete(self) -> str:
        keys = self._target.keys
        if self._kind == "mysql":
            same = " AND ".join(f"x.{name} = l.c{place}" for name, place in zip(self._names(keys), keys, strict=True))
            return f"DELETE x FROM {self._table} x JOIN ({self._last()}) l ON {same} WHERE l.d = 1"
        names = ", ".join(self._names(keys))
        gone = f"SELECT {self._places(keys)} FROM ({self._last()}) l WHERE d = 1"
        return f"DELETE FROM {self._table} WHERE ({names}) IN ({gone})"

    def _upsert(self) -> str:
        written, keys = self._target.written, self._target.keys
        insert = (
            f"INSERT INTO {self._table} ({', '.join(self._names(written))}) "
            f"SELECT {self._places(written)} FROM ({self._last()}) l WHERE d = 0"
        )
        others = self._names([place for place in written if place not in keys])
        if self._kind == "mysql":
            changes = [f"{name} = VALUES({name})" for name in others or self._names(keys)]
            return f"{insert} ON DUPLICATE KEY UPDATE {', '.join(changes)}"
        changes = [f"{name} = excluded.{name}" for name in others]
        change = f"UPDATE SET {', '.join(changes)}" if changes else "NOTHING"
        return f"{insert} ON CONFLICT ({', '.join(self._names(keys))}) DO {change}"
