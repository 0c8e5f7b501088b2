"""From the messages of pgoutput to changes of one table: pure, message by message, nothing is kept but the transaction.

A batch reads the transactions whose commit record begins in [start, end). Both are ends of records in the write-ahead
log, so the same two numbers always choose the same transactions, whenever they are read again.

The first rows come from a snapshot, which was taken after the slot began to collect. Transactions that the snapshot
has seen are therefore collected, too; `Snapshot.has` recognises them by their number, as PostgreSQL itself does, and
they are left out.

*An update that changes the primary key* is two changes, a delete of the old key and an insert of the new one: whoever
keeps rows by key, as a compacted topic does, would keep the old one for ever otherwise.

*A large value that an update did not touch* is not in the log. With replica identity full it is taken from the old row;
without, it is null and its column is listed in `unchanged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from penstock.pipelines.relational.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    PgOutputError,
    Relation,
    TextRow,
    Truncate,
    Unchanged,
    Update,
)

READ, INSERT, UPDATE, DELETE, TRUNCATE = "read", "insert", "update", "delete", "truncate"
_XID_BITS = 32

NamedValues = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one row (or, for truncate, of all), values as text."""

    op: str
    key: NamedValues | None
    before: NamedValues | None
    after: NamedValues | None
    unchanged: tuple[str, ...]
    lsn: int
    """where the commit of its transaction is in the log: it grows from transaction to transaction"""
    sequence: int
    """counts the changes of one transaction"""
    xid: int | None
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot of the database has seen, as `pg_current_snapshot()` writes it: 10:20:10,14,15."""

    text: str
    lsn: int
    """the log as long as it was right after: what commits behind it cannot have been seen"""

    def has(self, begin: Begin) -> bool:
        """Whether the transaction is part of what the snapshot sees."""
        if begin.final_lsn >= self.lsn:
            return False
        xmin, xmax, running = parse_snapshot(self.text)
        xid = _whole_xid(begin.xid, xmax)
        return xid < xmin or (xid < xmax and xid not in running)


def parse_snapshot(text: str) -> tuple[int, int, frozenset[int]]:
    """The first running transaction, the first that had not begun, and those that ran."""
    try:
        xmin, xmax, running = text.split(":")
        return int(xmin), int(xmax), frozenset(int(each) for each in running.split(",") if each)
    except ValueError:
        raise PgOutputError(f"a snapshot is written 10:20:10,14, not {text[:100]!r}") from None


def _whole_xid(xid: int, near: int) -> int:
    """The log has the low 32 bits of a transaction's number: the whole one is that which is nearest to another."""
    turn = 1 << _XID_BITS
    distance = (xid - near) % turn
    return near + (distance - turn if distance >= turn >> 1 else distance)


class ChangeReader:
    """Turns the messages of one decoding into the changes of one table."""

    def __init__(
        self, table: tuple[str, str], key: tuple[str, ...], start: int, end: int, snapshot: Snapshot | None = None
    ) -> None:
        self._table = table
        self._key = key
        self._start = start
        self._end = end
        self._snapshot = snapshot
        self._relations: dict[int, Relation] = {}
        self._begin: Begin | None = None
        self._is_wanted = False
        self._sequence = 0

    def changes(self, messages: Iterable[Message]) -> Iterator[Change]:
        for message in messages:
            if isinstance(message, Begin):
                self._start_transaction(message)
            elif isinstance(message, Commit):
                self._begin = None
            elif isinstance(message, Relation):
                self._relations[message.id] = message
            elif isinstance(message, Insert | Update | Delete | Truncate):
                if self._begin is None:
                    raise PgOutputError("a change outside of a transaction")
                if self._is_wanted:
                    yield from self._changes_of(message)

    def _start_transaction(self, begin: Begin) -> None:
        self._begin = begin
        self._sequence = 0
        seen = self._snapshot is not None and self._snapshot.has(begin)
        self._is_wanted = self._start <= begin.final_lsn < self._end and not seen

    def _changes_of(self, message: Insert | Update | Delete | Truncate) -> Iterator[Change]:
        if isinstance(message, Truncate):
            if any(self._is_ours(self._relation(each)) for each in message.relation_ids):
                yield self._change(TRUNCATE)
            return
        relation = self._relation(message.relation_id)
        if not self._is_ours(relation):
            return
        if isinstance(message, Insert):
            yield self._change(INSERT, after=_named(relation, message.new))
        elif isinstance(message, Delete):
            yield self._change(DELETE, before=_old(relation, message.old, message.is_old_whole))
        else:
            yield from self._update(relation, message)

    def _update(self, relation: Relation, message: Update) -> Iterator[Change]:
        before = None if message.old is None else _old(relation, message.old, message.is_old_whole)
        after = _named(relation, message.new)
        if before is not None and message.is_old_whole:
            after = {name: before.get(name) if value is UNCHANGED else value for name, value in after.items()}
        if before is not None and any(before.get(name) != after.get(name) for name in self._key):
            yield self._change(DELETE, before=before)
            yield self._change(INSERT, after=after)
        else:
            yield self._change(UPDATE, before=before, after=after)

    def _relation(self, relation_id: int) -> Relation:
        try:
            return self._relations[relation_id]
        except KeyError:
            raise PgOutputError(f"a change of a table that was not described, number {relation_id}") from None

    def _is_ours(self, relation: Relation) -> bool:
        return (relation.schema, relation.name) == self._table

    def _change(
        self, op: str, before: NamedValues | None = None, after: Mapping[str, str | Unchanged | None] | None = None
    ) -> Change:
        assert self._begin is not None
        unchanged = tuple(name for name, value in (after or {}).items() if value is UNCHANGED)
        known = None if after is None else {name: _known(value) for name, value in after.items()}
        identifying = before if op == DELETE else known
        key = None if identifying is None else {name: identifying.get(name) for name in self._key}
        self._sequence += 1
        begin = self._begin
        return Change(
            op, key, before, known, unchanged, begin.final_lsn, self._sequence - 1, begin.xid, begin.committed_at
        )


def _named(relation: Relation, row: TextRow) -> dict[str, str | Unchanged | None]:
    if len(row) != len(relation.columns):
        raise PgOutputError(f"a row of {len(row)} columns in {relation.name}, which has {len(relation.columns)}")
    return {column.name: value for column, value in zip(relation.columns, row, strict=True)}


def _old(relation: Relation, row: TextRow, is_whole: bool) -> dict[str, str | None]:
    """What is known of a row as it was: all of it, or its key."""
    named = _named(relation, row)
    keys = {column.name for column in relation.columns if column.is_key}
    return {name: _known(value) for name, value in named.items() if is_whole or name in keys}


def _known(value: str | Unchanged | None) -> str | None:
    return None if isinstance(value, Unchanged) else value
