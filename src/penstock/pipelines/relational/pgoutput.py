"""The messages of PostgreSQL's output plugin `pgoutput` (protocol version 1): bytes in, plain data out, no I/O.

A transaction is a Begin, then changes in the order in which they were made, then a Commit. Before the first change of a
table a Relation says which columns its rows have; rows come as tuples of values in that order. A value is null, text as
the type writes itself, or *unchanged*: a large value that is kept beside the row (TOAST) and was not part of an update.
What is not well formed is a `PgOutputError`, never another exception.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
COLUMNS_MAX = 1664
"""the most columns that a row of PostgreSQL can have"""


class PgOutputError(ValueError):
    """A message that is not what pgoutput sends."""


class Unchanged(Enum):
    """Stands for a large value that an update did not touch, and which is therefore not sent."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
TextValue = str | None | Unchanged
TextRow = tuple[TextValue, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    final_lsn: int
    committed_at: datetime
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    commit_lsn: int
    end_lsn: int
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class Origin:
    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    is_key: bool
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    id: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Type:
    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    relation_id: int
    new: TextRow


@dataclass(frozen=True, slots=True)
class Update:
    relation_id: int
    old: TextRow | None
    """None: nothing of the old row is sent, because its key did not change"""
    is_old_whole: bool
    """the old row has all columns (replica identity full), not only those of the key"""
    new: TextRow


@dataclass(frozen=True, slots=True)
class Delete:
    relation_id: int
    old: TextRow
    is_old_whole: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    relation_ids: tuple[int, ...]
    is_cascade: bool
    restarts_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


Message = Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | LogicalMessage


def decode(data: bytes) -> Message:
    """One message, whole."""
    reader = _Reader(data)
    tag = reader.tag()
    read = _READERS.get(tag)
    if read is None:
        raise PgOutputError(f"a message of an unknown kind: {tag!r}")
    message = read(reader)
    if reader.left:
        raise PgOutputError(f"{reader.left} bytes too many in a message of kind {tag!r}")
    return message


class _Reader:
    """A place in a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.left:
            raise PgOutputError(f"a message ends too early: {size} bytes wanted, {self.left} left")
        self._at += size
        return self._data[self._at - size : self._at]

    def tag(self) -> str:
        return chr(self.take(1)[0])

    def number(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise PgOutputError("a name in a message has no end")
        value = self.take(end - self._at)
        self.take(1)
        return _as_text(value)

    def time(self) -> datetime:
        microseconds = self.number(_I64)
        try:
            return POSTGRES_EPOCH + timedelta(microseconds=microseconds)
        except OverflowError:
            raise PgOutputError(f"a time out of range: {microseconds}") from None

    def row(self) -> TextRow:
        count = self.number(_U16)
        if count > COLUMNS_MAX:
            raise PgOutputError(f"a row of {count} columns")
        return tuple(self._value() for _ in range(count))

    def _value(self) -> TextValue:
        kind = self.tag()
        if kind == "t":
            return _as_text(self.take(self.number(_I32)))
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        raise PgOutputError(f"a value of an unknown kind: {kind!r}")


def _as_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise PgOutputError("text that is not UTF-8: the session's client_encoding has to be UTF8") from None


_U8 = struct.Struct("!B")
_U16 = struct.Struct("!H")
_I32 = struct.Struct("!i")
_U32 = struct.Struct("!I")
_I64 = struct.Struct("!q")
_U64 = struct.Struct("!Q")


def _begin(reader: _Reader) -> Begin:
    return Begin(reader.number(_U64), reader.time(), reader.number(_U32))


def _commit(reader: _Reader) -> Commit:
    reader.number(_U8)  # flags, none of which is in use
    return Commit(reader.number(_U64), reader.number(_U64), reader.time())


def _origin(reader: _Reader) -> Origin:
    return Origin(reader.number(_U64), reader.text())


def _relation(reader: _Reader) -> Relation:
    oid, schema, name, identity = reader.number(_U32), reader.text(), reader.text(), reader.tag()
    count = reader.number(_U16)
    if count > COLUMNS_MAX:
        raise PgOutputError(f"a table of {count} columns")
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(_column(reader) for _ in range(count)))


def _column(reader: _Reader) -> RelationColumn:
    flags, name = reader.number(_U8), reader.text()
    return RelationColumn(name, bool(flags & 1), reader.number(_U32), reader.number(_I32))


def _type(reader: _Reader) -> Type:
    return Type(reader.number(_U32), reader.text() or "pg_catalog", reader.text())


def _insert(reader: _Reader) -> Insert:
    relation_id = reader.number(_U32)
    _expect(reader.tag(), "N")
    return Insert(relation_id, reader.row())


def _update(reader: _Reader) -> Update:
    relation_id, tag = reader.number(_U32), reader.tag()
    old, is_whole = None, tag == "O"
    if tag in "KO":
        old, tag = reader.row(), reader.tag()
    _expect(tag, "N")
    return Update(relation_id, old, is_whole, reader.row())


def _delete(reader: _Reader) -> Delete:
    relation_id, tag = reader.number(_U32), reader.tag()
    _expect(tag, "KO")
    return Delete(relation_id, reader.row(), tag == "O")


def _truncate(reader: _Reader) -> Truncate:
    count, flags = reader.number(_U32), reader.number(_U8)
    if count * _U32.size > reader.left:
        raise PgOutputError(f"a message ends too early: {count} tables wanted")
    return Truncate(tuple(reader.number(_U32) for _ in range(count)), bool(flags & 1), bool(flags & 2))


def _logical_message(reader: _Reader) -> LogicalMessage:
    flags, lsn, prefix = reader.number(_U8), reader.number(_U64), reader.text()
    return LogicalMessage(bool(flags & 1), lsn, prefix, reader.take(reader.number(_I32)))


def _expect(tag: str, wanted: str) -> None:
    if tag not in wanted:
        raise PgOutputError(f"a row of kind {tag!r} where {' or '.join(wanted)} belongs")


_READERS: dict[str, Callable[[_Reader], Message]] = {
    "B": _begin,
    "C": _commit,
    "O": _origin,
    "R": _relation,
    "Y": _type,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _logical_message,
}
