"""A snapshot of PostgreSQL that the tasks of a batch share while one connection holds it.

The planner's process holds it; a task takes it over by its name at the beginning of its own transaction. It ends with
the connection, so a query that was killed leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from penstock.pipelines.relational.address import TableAddress
from penstock.pipelines.relational.change_rows import Snapshot
from penstock.pipelines.relational.ranges import KeyRange, even_cuts, ranges_between
from penstock.pipelines.relational.session import Session, open_session
from penstock.pipelines.relational.slot import lsn_from_text

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclass
class SharedPartition(InputPartition):
    """Blocks of the table that one task reads."""

    snapshot: str
    blocks: KeyRange
    lsn: int
    taken_at: str


class SharedSnapshot:
    """See the head of this file."""

    def __init__(self, address: TableAddress) -> None:
        self._held = ExitStack()
        self._session = self._held.enter_context(open_session(address))
        self._session.run(_BEGIN)
        self._session.run("SET LOCAL idle_in_transaction_session_timeout = 0")
        statement = (
            "SELECT pg_export_snapshot(), pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, now()::text"
        )
        self.name, seen, lsn, self.taken_at = self._session.run(statement)[0]
        self.seen = Snapshot(seen, lsn_from_text(lsn))

    def partitions(self, parts: int, lsn: int) -> list[SharedPartition]:
        """The table by its blocks, which stay where they are for a snapshot."""
        statement = "SELECT (pg_relation_size(to_regclass(%s)) / current_setting('block_size')::int)::bigint"
        blocks = self._session.run(statement, (self._session.table.replace("%%", "%"),))[0][0]
        ranges = ranges_between(even_cuts(0, blocks, parts))
        return [SharedPartition(self.name, each, lsn, str(self.taken_at)) for each in ranges]

    def close(self) -> None:
        self._held.close()


def copy_rows(session: Session, names: list[str], partition: SharedPartition) -> Iterator[tuple[str | None, ...]]:
    """The rows of the blocks, every value as its type writes itself, which is how changes come, too."""
    session.run(_BEGIN)
    session.run("SET TRANSACTION SNAPSHOT " + _literal(partition.snapshot))
    conditions = []
    if partition.blocks.at_least is not None:
        conditions.append(f"ctid >= '({int(partition.blocks.at_least)},0)'::tid")
    if partition.blocks.below is not None:
        conditions.append(f"ctid < '({int(partition.blocks.below)},0)'::tid")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join(session.quote(name) for name in names).replace("%%", "%")
    statement = f"COPY (SELECT {columns} FROM {session.table.replace('%%', '%')}{where}) TO STDOUT"
    with session.connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        yield from copy.rows()


def _literal(name: str) -> str:
    """SET takes no parameters; a snapshot's name has digits, letters and dashes."""
    assert all(each.isalnum() or each == "-" for each in name)
    return f"'{name}'"
