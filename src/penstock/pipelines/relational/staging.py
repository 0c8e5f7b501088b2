"""Staging: what a task does. It copies its rows into a table of its own, and reports the name of that table.

A staging table stands beside the target and has a name that nobody else makes up: an attempt at a task never meets
what another left behind. It counts only if its name is reported, so it does not matter whether an attempt that died has
filled it. Its columns are numbered, c0 to cN in the order of the DataFrame, with the types of the target, so that a
value that does not fit is noticed here; `n` numbers the rows, `d` is 1 for a row that deletes.

Memory stays bounded: rows are copied as they come, a few thousand at a time.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock.pipelines.relational.failures import RowsRefused
from penstock.pipelines.relational.plain_columns import as_array_literals, as_hex, finite_column, plain_column
from penstock.pipelines.relational.session import Session, open_session
from penstock.pipelines.relational.table_batch import TableBatch, find_last, is_merged
from penstock.pipelines.relational.table_sink_options import DELETE, INSERT, TOMBSTONES
from penstock.pipelines.relational.target import Target

PREFIX = "penstock_stage_"
#: Written at once: so many rows at most, and not much more than so many bytes.
CHUNK_ROWS = 5_000
CHUNK_BYTES = 4 << 20
#: What nobody has merged for so long is a leftover, whoever made it.
LEFTOVER_AGE_S = 24 * 3600
_NAME = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_([0-9a-f]+)_([0-9a-f]+)_[0-9a-f]+")
_LISTS = {
    "postgresql": (
        "SELECT tablename FROM pg_tables WHERE schemaname = coalesce(%s, current_schema()) AND "
        f"starts_with(tablename, '{PREFIX}')"
    ),
    "mysql": f"SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND "
    f"LEFT(table_name, {len(PREFIX)}) = '{PREFIX}'",
    "sqlite": f"SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, {len(PREFIX)}) = '{PREFIX}'",
}


@dataclass(frozen=True, slots=True)
class Staged:
    """What one task has staged."""

    rows: int
    deletes: int
    stage: str | None
    """the name of its table; None: it had no rows, or the batch had been merged before"""


def stage_rows(target: Target, batch: TableBatch, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Copy all rows; RelationalError."""
    filled = (each for each in rows if each.num_rows)
    first = next(filled, None)
    if first is None:
        return Staged(0, 0, None)
    with open_session(target.options.address, patience_s=target.options.retry_s) as session:
        if is_merged(batch, find_last(session, batch), str(session.address)):
            return Staged(first.num_rows + sum(each.num_rows for each in filled), 0, None)
        name = stage_name(batch, session.address.table_shown)
        session.run(stage_statement(session, target, name))
        staged = _Staging(session, target, name)
        try:
            staged.write(first, filled)
        except BaseException:
            drop_stages(session, [name])
            raise
        return Staged(staged.count, staged.deletes, name)


def stage_name(batch: TableBatch, table: str) -> str:
    """Whose it is, for which batch, since when, and something that nobody else has."""
    return f"{PREFIX}{_owner(batch, table)}_{batch.number:x}_{int(time.time()):x}_{secrets.token_hex(4)}"


def _owner(batch: TableBatch, table: str) -> str:
    return hashlib.sha256(f"{batch.name}\0{table}".encode()).hexdigest()[:12]


def stage_table(session: Session, name: str) -> str:
    """A staging table as it stands in a statement."""
    schema = session.address.schema
    return session.quote(name) if schema is None else f"{session.quote(schema)}.{session.quote(name)}"


def stage_statement(session: Session, target: Target, name: str) -> str:
    kind = session.address.kind
    columns = []
    for place, column in enumerate(target.columns):
        declared = "" if kind == "sqlite" else " " + column.staged_type.replace("%", "%%")
        columns.append(f"c{place}{declared}{' NULL' if kind == 'mysql' else ''}")
    word = "CREATE UNLOGGED TABLE" if kind == "postgresql" else "CREATE TABLE"
    return f"{word} {stage_table(session, name)} ({', '.join(columns)}, n bigint NOT NULL, d smallint NOT NULL)"


def drop_stages(session: Session, names: list[str]) -> None:
    """Remove staging tables, as far as they are there."""
    for name in names:
        session.run(f"DROP TABLE IF EXISTS {stage_table(session, name)}")


def leftovers(session: Session, batch: TableBatch) -> list[str]:
    """Staging tables of this name for this batch and those before it, and very old ones of anybody."""
    parameters = (session.address.schema,) if session.address.kind == "postgresql" else ()
    names = [row[0] for row in session.run(_LISTS[session.address.kind], parameters)]
    return [name for name in names if is_leftover(name, batch, session.address.table_shown, time.time())]


def is_leftover(name: str, batch: TableBatch, table: str, now_s: float) -> bool:
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    is_ours = found[1] == _owner(batch, table) and int(found[2], 16) <= batch.number
    return is_ours or int(found[3], 16) < now_s - LEFTOVER_AGE_S


class _Staging:
    """The rows of one task on their way into its table."""

    def __init__(self, session: Session, target: Target, name: str) -> None:
        self.count = 0
        self.deletes = 0
        self._session = session
        self._target = target
        self._table = stage_table(session, name)

    def write(self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> None:
        if self._session.address.kind == "postgresql":
            self._copy(first, others)
            return
        for batch in chain([first], others):
            self._insert(batch)

    def _copy(self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> None:
        """PostgreSQL: COPY from CSV, which Arrow writes."""
        options = csv.WriteOptions(include_header=False, quoting_style="needed")
        with (
            self._session.connection.cursor() as cursor,
            cursor.copy(f"COPY {self._table} FROM STDIN (FORMAT csv, NULL '')".encode(), ()) as copy,
        ):
            for batch in chain([first], others):
                copy.write(self._as_csv(batch, options))

    def _as_csv(self, batch: pa.RecordBatch, options: csv.WriteOptions) -> memoryview:
        columns = [
            as_array_literals(column)
            if pa.types.is_list(column.type) and about.staged_type.endswith("[]")
            else plain_column(column, about.name)
            for column, about in zip(batch.columns, self._target.columns, strict=True)
        ]
        columns = [as_hex(column) if _is_bytes(column) else column for column in columns]
        columns += self._numbers(batch)
        out = pa.BufferOutputStream()
        csv.write_csv(pa.record_batch(columns, [str(place) for place in range(len(columns))]), out, options)
        return memoryview(out.getvalue())

    def _insert(self, batch: pa.RecordBatch) -> None:
        """MySQL and SQLite: rows as parameters, a few at a time, each time a short transaction."""
        step = max(1, min(CHUNK_ROWS, CHUNK_BYTES * batch.num_rows // max(1, batch.nbytes)))
        marks = ", ".join([self._session.parameter] * (len(self._target.columns) + 2))
        statement = f"INSERT INTO {self._table} VALUES ({marks})"
        for start in range(0, batch.num_rows, step):
            rows = self._as_rows(batch.slice(start, step))
            with self._session.transaction():
                cursor = self._session.connection.cursor()
                cursor.executemany(statement, rows)
                cursor.close()

    def _as_rows(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        is_mysql = self._session.address.kind == "mysql"
        columns = [
            finite_column(plain_column(column, about.name), about.name, infinite_too=is_mysql)
            for column, about in zip(batch.columns, self._target.columns, strict=True)
        ]
        columns += self._numbers(batch)
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def _numbers(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns n and d; counts."""
        self._check_keys(batch)
        numbers = pa.array(range(self.count, self.count + batch.num_rows), pa.int64())
        deletes = deleting(self._target, batch)
        self.count += batch.num_rows
        self.deletes += pc.sum(deletes).as_py() or 0
        return [numbers, deletes]

    def _check_keys(self, batch: pa.RecordBatch) -> None:
        if self._target.options.mode == INSERT:
            return
        for place in self._target.keys:
            if batch.column(place).null_count:
                raise RowsRefused(
                    f"a row has null in {self._target.columns[place].name!r}, which is a key; it needs a value"
                )


def deleting(target: Target, batch: pa.RecordBatch) -> pa.Array:
    """1 for each row that deletes, 0 for the others."""
    options = target.options
    if options.mode == DELETE or options.delete_when is None:
        return pa.array([int(options.mode == DELETE)] * batch.num_rows, pa.int16())
    if options.delete_when != TOMBSTONES:
        return pc.fill_null(batch.column(target.place(options.delete_when)), False).cast(pa.int16())
    flags = pa.array([True] * batch.num_rows)
    for place, column in enumerate(target.columns):
        if not column.is_key and column.name != options.order_by:
            flags = pc.and_(flags, pc.is_null(batch.column(place)))
    return flags.cast(pa.int16())


def _is_bytes(column: pa.Array) -> bool:
    return bool(pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type))
