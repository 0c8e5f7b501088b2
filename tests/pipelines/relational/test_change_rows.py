"""Which transactions a batch and a snapshot have, without a server."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.pipelines.relational.change_rows import ChangeReader, Snapshot, parse_snapshot
from penstock.pipelines.relational.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Insert,
    Message,
    PgOutputError,
    Relation,
    RelationColumn,
    Update,
)
from penstock.pipelines.relational.slot import lsn_as_text, lsn_from_text

AT = datetime(2026, 1, 31, tzinfo=UTC)
ITEMS = Relation(7, "public", "items", "d", (RelationColumn("id", True, 23, -1), RelationColumn("name", False, 25, -1)))


def begin(lsn: int, xid: int = 1) -> Begin:
    return Begin(lsn, AT, xid)


@pytest.mark.parametrize(
    ("xid", "is_seen"), [(9, True), (10, False), (12, True), (14, False), (19, True), (20, False), (25, False)]
)
def test_a_snapshot_sees_what_postgresql_says(xid: int, is_seen: bool) -> None:
    assert Snapshot("10:20:10,14", lsn=1000).has(begin(999, xid)) is is_seen
    assert not Snapshot("10:20:10,14", lsn=1000).has(begin(1000, xid))


def test_numbers_of_transactions_turn_over() -> None:
    turn = 1 << 32
    snapshot = Snapshot(f"{turn + 5}:{turn + 8}:{turn + 5}", lsn=1000)
    assert snapshot.has(begin(1, turn - 2)) and snapshot.has(begin(1, 4)) and snapshot.has(begin(1, 6))
    assert not snapshot.has(begin(1, 5)) and not snapshot.has(begin(1, 8)) and not snapshot.has(begin(1, 1000))


@pytest.mark.parametrize("text", ["", "1:2", "a:b:c", "1:2:3:4"])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(PgOutputError):
        parse_snapshot(text)


def test_a_batch_has_the_commits_from_its_start_and_before_its_end() -> None:
    messages: list[Message] = [ITEMS]
    for lsn in (99, 100, 199, 200):
        messages += [begin(lsn), Insert(7, (str(lsn), "x")), Commit(lsn, lsn + 1, AT)]
    reader = ChangeReader(("public", "items"), ("id",), 100, 200)
    assert [each.lsn for each in reader.changes(messages)] == [100, 199]


def test_a_key_that_changes_is_a_delete_and_an_insert() -> None:
    update = Update(7, ("1", None), False, ("2", UNCHANGED))
    reader = ChangeReader(("public", "items"), ("id",), 0, 10)
    gone, come = reader.changes([begin(5), ITEMS, update])
    assert (gone.op, gone.key, gone.before, gone.after) == ("delete", {"id": "1"}, {"id": "1"}, None)
    assert (come.op, come.key, come.after) == ("insert", {"id": "2"}, {"id": "2", "name": None})
    assert come.unchanged == ("name",) and (gone.sequence, come.sequence) == (0, 1)


@pytest.mark.parametrize(
    "messages", [[Insert(7, ("1",))], [begin(1), Insert(7, ("1",))], [begin(1), ITEMS, Insert(7, ())]]
)
def test_messages_out_of_order_are_refused(messages: list[Message]) -> None:
    with pytest.raises(PgOutputError):
        list(ChangeReader(("public", "items"), ("id",), 0, 10).changes(messages))


def test_places_of_the_log_as_text() -> None:
    assert lsn_as_text(lsn_from_text("16/B374D848")) == "16/B374D848"
    with pytest.raises(ValueError):
        lsn_from_text("12")
