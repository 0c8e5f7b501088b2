"""The decoder against an encoder that was written for the test alone, and against every kind of damage."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipelines.relational.pgoutput import (
    POSTGRES_EPOCH,
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    PgOutputError,
    Relation,
    RelationColumn,
    TextRow,
    Truncate,
    Type,
    Update,
    decode,
)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def microseconds(value: datetime) -> int:
    return (value - POSTGRES_EPOCH) // timedelta(microseconds=1)


def row(values: TextRow) -> bytes:
    out = struct.pack("!H", len(values))
    for value in values:
        if value is None:
            out += b"n"
        elif isinstance(value, str):
            out += b"t" + struct.pack("!i", len(value.encode())) + value.encode()
        else:
            out += b"u"
    return out


def encode(message: Message) -> bytes:
    match message:
        case Begin(lsn, at, xid):
            return b"B" + struct.pack("!QqI", lsn, microseconds(at), xid)
        case Commit(commit, end, at):
            return b"C\0" + struct.pack("!QQq", commit, end, microseconds(at))
        case Origin(lsn, name):
            return b"O" + struct.pack("!Q", lsn) + text(name)
        case Relation(oid, schema, name, identity, columns):
            head = b"R" + struct.pack("!I", oid) + text(schema) + text(name) + identity.encode()
            return head + struct.pack("!H", len(columns)) + b"".join(column(each) for each in columns)
        case Type(oid, schema, name):
            return b"Y" + struct.pack("!I", oid) + text(schema) + text(name)
        case Insert(oid, new):
            return b"I" + struct.pack("!I", oid) + b"N" + row(new)
        case Update(oid, old, is_whole, new):
            before = b"" if old is None else (b"O" if is_whole else b"K") + row(old)
            return b"U" + struct.pack("!I", oid) + before + b"N" + row(new)
        case Delete(oid, old, is_whole):
            return b"D" + struct.pack("!I", oid) + (b"O" if is_whole else b"K") + row(old)
        case Truncate(oids, cascade, restarts):
            flags = (1 if cascade else 0) | (2 if restarts else 0)
            return b"T" + struct.pack("!IB", len(oids), flags) + b"".join(struct.pack("!I", oid) for oid in oids)
        case LogicalMessage(transactional, lsn, prefix, content):
            head = b"M" + struct.pack("!BQ", transactional, lsn) + text(prefix)
            return head + struct.pack("!i", len(content)) + content


def column(each: RelationColumn) -> bytes:
    return struct.pack("!B", each.is_key) + text(each.name) + struct.pack("!Ii", each.type_oid, each.type_modifier)


OIDS = st.integers(0, 2**32 - 1)
LSNS = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
TIMES = st.datetimes(timezones=st.just(UTC))
ROWS = st.lists(st.one_of(st.none(), st.just(UNCHANGED), st.text(max_size=12)), max_size=6).map(tuple)
COLUMNS = st.builds(RelationColumn, NAMES, st.booleans(), OIDS, st.integers(-1, 2**31 - 1))
OLD = st.one_of(st.just((None, False)), st.tuples(ROWS, st.booleans()))
MESSAGES = st.one_of(
    st.builds(Begin, LSNS, TIMES, OIDS),
    st.builds(Commit, LSNS, LSNS, TIMES),
    st.builds(Origin, LSNS, NAMES),
    st.builds(Relation, OIDS, NAMES, NAMES, st.sampled_from("dnfi"), st.lists(COLUMNS, max_size=4).map(tuple)),
    st.builds(Type, OIDS, NAMES, NAMES),
    st.builds(Insert, OIDS, ROWS),
    st.builds(lambda oid, old, new: Update(oid, old[0], old[1], new), OIDS, OLD, ROWS),
    st.builds(Delete, OIDS, ROWS, st.booleans()),
    st.builds(Truncate, st.lists(OIDS, max_size=4).map(tuple), st.booleans(), st.booleans()),
    st.builds(LogicalMessage, st.booleans(), LSNS, NAMES, st.binary(max_size=20)),
)


@given(MESSAGES)
def test_what_was_encoded_is_decoded(message: Message) -> None:
    assert decode(encode(message)) == message


@given(MESSAGES, st.data())
def test_a_message_that_is_cut_off_or_too_long_is_refused(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    with pytest.raises(PgOutputError):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(PgOutputError):
        decode(whole + b"x")


@given(MESSAGES, st.data())
def test_damage_is_refused_or_is_another_message(message: Message, data: st.DataObject) -> None:
    whole = bytearray(encode(message))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(whole))
    except PgOutputError:
        pass


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        decode(data)
    except PgOutputError:
        pass


def test_the_catalogs_schema_is_sent_without_a_name() -> None:
    relation = decode(b"R" + struct.pack("!I", 7) + b"\0" + text("pg_class") + b"n\0\0")
    assert isinstance(relation, Relation) and relation.schema == "pg_catalog"
