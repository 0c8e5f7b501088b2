"""A replication slot of PostgreSQL, used with SQL: making it, how far there are changes, and moving it on.

A slot keeps the write-ahead log from its position on, so that changes can be read again until the slot is moved on.
That costs disk space at the server for as long as nobody reads: `slot_status` says how much.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from penstock.pipelines.relational.address import parse_address
from penstock.pipelines.relational.failures import RelationalError, TableOptionError, TryAgain
from penstock.pipelines.relational.pgoutput import Commit, decode
from penstock.pipelines.relational.session import Session, open_session

PLUGIN = "pgoutput"
FREE_S_MAX = 30.0
FLUSH_S_MAX = 5.0
POLL_S = 0.05
PEEK = (
    "pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s::int, 'proto_version', '1', 'publication_names', %s::text)"
)
#: So that values are written the same way whatever the server's defaults are.
SESSION_SETTINGS = (
    "SET datestyle = 'ISO, YMD'",
    "SET timezone = 'UTC'",
    "SET bytea_output = 'hex'",
    "SET intervalstyle = 'postgres'",
    "SET extra_float_digits = 1",
    "SET client_encoding = 'UTF8'",
)
_STATE = """
    SELECT plugin, database, active_pid, restart_lsn::text, confirmed_flush_lsn::text, wal_status,
           pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint,
           pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, current_database()
    FROM pg_replication_slots WHERE slot_name = %s"""


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """A slot as it is now."""

    name: str
    active_pid: int | None
    """who reads from it at this moment"""
    confirmed_lsn: int
    """all before it has been read for good"""
    held_back_bytes: int
    """how much of the log the server keeps because of the slot"""
    behind_bytes: int
    """how much of the log was written since what was read for good"""
    wal_status: str


def lsn_from_text(text: str) -> int:
    """The number in 16/B374D848; ValueError."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"{text[:40]!r} is no place in a write-ahead log")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_as_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def slot_status(url: str, slot: str) -> SlotStatus | None:
    """For whoever shows how a pipeline is doing; None: there is no such slot. RelationalError."""
    with open_session(parse_address(url)) as session:
        return find_slot(session, slot)


def find_slot(session: Session, name: str) -> SlotStatus | None:
    rows = session.run(_STATE, (name,))
    if not rows:
        return None
    plugin, database, pid, restart, confirmed, wal_status, held_back, behind, here = rows[0]
    if plugin != PLUGIN or database != here:
        raise TableOptionError(
            "slot",
            f"{name} belongs to {plugin or 'physical replication'} in {database or 'no database'}; choose another",
        )
    if wal_status == "lost" or restart is None or confirmed is None:
        raise RelationalError(
            f"the replication slot {name} of {session.address.database_shown} is lost: the server dropped the log that "
            f"it needs (max_slot_wal_keep_size), and with it changes that were not read. {_begin_anew(name)}"
        )
    return SlotStatus(name, pid, lsn_from_text(confirmed), int(held_back), int(behind), wal_status)


def require_slot(session: Session, name: str, position: int) -> SlotStatus:
    """The slot, which must still have everything from the position on."""
    found = find_slot(session, name)
    if found is None:
        raise RelationalError(
            f"the replication slot {name} of {session.address.database_shown} does not exist any more: changes since "
            f"{lsn_as_text(position)} cannot be read. {_begin_anew(name)}"
        )
    if found.confirmed_lsn > position:
        raise RelationalError(
            f"the replication slot {name} of {session.address.database_shown} stands at "
            f"{lsn_as_text(found.confirmed_lsn)}, past {lsn_as_text(position)} where this query is: somebody else "
            f"reads from it, or the checkpoint is an old one. Every query needs a slot of its own. {_begin_anew(name)}"
        )
    return found


def _begin_anew(slot: str) -> str:
    return (
        f"To begin anew with a snapshot, remove the query's checkpoint, and the slot if it is there: "
        f"SELECT pg_drop_replication_slot('{slot}')"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def ensure_slot(session: Session, name: str) -> int:
    """Where the slot begins to collect; it is made if it is not there."""
    found = find_slot(session, name)
    if found is not None:
        return found.confirmed_lsn
    return lsn_from_text(
        session.run("SELECT lsn::text FROM pg_create_logical_replication_slot(%s, %s)", (name, PLUGIN))[0][0]
    )


def peek_parameters(slot: str, end: int | None, changes_max: int | None, publication: str) -> tuple[Any, ...]:
    """For `PEEK`."""
    return slot, None if end is None else lsn_as_text(end), changes_max, _quoted(publication)


def wait_until_free(session: Session, name: str) -> None:
    """A slot serves one at a time: a task that was given up may still have it for a moment."""
    until_s = time.monotonic() + FREE_S_MAX
    while (found := find_slot(session, name)) is not None and found.active_pid is not None:
        if time.monotonic() > until_s:
            raise TryAgain(
                f"the replication slot {name} of {session.address.database_shown} is in use by the server's process "
                f"{found.active_pid}: every query needs a slot of its own"
            )
        time.sleep(POLL_S)


def next_commit(session: Session, slot: str, publication: str, changes_max: int, end: int | None) -> int | None:
    """The end of the last transaction within the limit; None: there is none."""
    wait_until_free(session, slot)
    statement = f"SELECT data FROM {PEEK} WHERE get_byte(data, 0) = ascii('C') ORDER BY lsn DESC LIMIT 1"
    rows = session.run(statement, peek_parameters(slot, end, changes_max, publication))
    if not rows:
        return None
    message = decode(bytes(rows[0][0]))
    assert isinstance(message, Commit)
    return message.end_lsn


def flushed_lsn(session: Session) -> int:
    return lsn_from_text(session.run("SELECT pg_current_wal_flush_lsn()::text")[0][0])


def mark_the_end(session: Session) -> int | None:
    """The end of the log as it is now, which is the end of a record: of one that is written for it.

    Others' ends may be in the middle of a record. Everything before it has been flushed, so it can be read; None if
    that takes too long.
    """
    end = lsn_from_text(session.run("SELECT pg_logical_emit_message(false, 'penstock', '')::text")[0][0])
    until_s = time.monotonic() + FLUSH_S_MAX
    while flushed_lsn(session) < end:
        if time.monotonic() > until_s:
            return None
        time.sleep(POLL_S)
    return end


def advance(session: Session, slot: SlotStatus, position: int) -> None:
    """Let go of the log before the position."""
    if position > slot.confirmed_lsn:
        wait_until_free(session, slot.name)
        session.run("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (slot.name, lsn_as_text(position)))


def prepared(session: Session) -> Session:
    """The session with settings that make text the same everywhere."""
    for each in SESSION_SETTINGS:
        session.run(each)
    return session
