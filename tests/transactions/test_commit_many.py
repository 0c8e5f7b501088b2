"""Committing many producers at once: all or none, once, and nothing is left over."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.transactions.commit_many import TRANSACTIONS_MAX
from penstock.transactions.names import id_of_member
from penstock.transactions.records import TRANSACTIONS_CODEC
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.transaction import EPOCH_MAX, PREPARED_STATES, State, Transaction
from penstock.wire.messages.commit_many_records import CommitDecisionKey, CommitDecisionValue
from penstock.wire.messages.k20001_commit_transactions import (
    CommitTransactionsRequest,
    CommitTransactionsRequestTransaction,
)

from .rig import Rig, Waiting

NAME = "query"
P = [TopicPartition("t", index) for index in range(4)]
HOUR_MS = 3_600_000
Members = list[tuple[str, ProducerEpoch]]


def open_all(rig: Rig, count: int, tag: str, *, attempt: int = 0, timeout_ms: int = 60_000) -> Members:
    """Tasks of a batch: each takes an id over and writes."""
    members = []
    for number in range(count):
        member = f"{number}/{attempt % 4}"
        transactional_id = id_of_member(NAME, member)
        producer = rig.producer(transactional_id, timeout_ms=timeout_ms)
        error = rig.write(transactional_id, producer, f"{tag}-{number}", P[number % 4], P[(number + 1) % 4])
        assert error is Error.NONE
        members.append((member, producer))
    return members


def prepared(rig: Rig, count: int, number: int, run: int = 0, *, attempt: int = 0, tag: str | None = None) -> Members:
    members = open_all(rig, count, tag or f"batch{number}", attempt=attempt)
    for member in members:
        assert rig.prepare(NAME, number, run, member).answer.error_code == Error.NONE
    return members


def error_of(waiting: Waiting) -> Error:
    return Error(waiting.answer.error_code)


def fates_of(rig: Rig, tag: str) -> set[str]:
    return set().union(*(fates for key, fates in rig.fates().items() if str(key).startswith(tag)))


# ── the ordinary way ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_batches_one_after_the_other() -> None:
    rig = Rig()
    for number in range(3):
        members = prepared(rig, 5, number)
        assert fates_of(rig, f"batch{number}") == {"open"}
        answer = rig.commit_many(NAME, number, members).answer
        assert (answer.error_code, answer.last_number, answer.already_committed) == (Error.NONE, number, False)
        assert fates_of(rig, f"batch{number}") == {"committed"}
    (described,) = map(rig.machine.many.describe, rig.machine.many.names())
    assert (described.name, described.last_number, described.is_complete) == (NAME, 2, True)
    assert described.transactions == []


def test_an_empty_batch_counts() -> None:
    rig = Rig()
    assert error_of(rig.commit_many(NAME, 0, [])) is Error.NONE
    assert rig.commit_many(NAME, 0, []).answer.already_committed
    assert error_of(rig.commit_many(NAME, 7, prepared(rig, 2, 7))) is Error.NONE  # numbers may be left out
    assert error_of(rig.commit_many(NAME, 6, [])) is Error.INVALID_UPDATE_VERSION


def test_two_thousand_ids_in_one_commit() -> None:
    rig = Rig()
    members = prepared(rig, 2000, 0)
    before = len(rig.batches)
    assert error_of(rig.commit_many(NAME, 0, members)) is Error.NONE
    assert fates_of(rig, "batch0") == {"committed"}
    (decision,) = rig.batches[before]  # one record
    assert sum(map(len, filter(None, decision))) < 60_000
    assert all(each.state is State.COMPLETE_COMMIT for each in rig.machine.table)
    key, value = rig.batches[-1][-1]
    last = TRANSACTIONS_CODEC.decode(key, value)
    assert last is not None
    assert isinstance(last.key, CommitDecisionKey)
    assert (last.value.number, last.value.transactions) == (0, [])  # and small for ever


def test_names_do_not_touch_each_other() -> None:
    rig = Rig()
    members = prepared(rig, 2, 0)
    other = id_of_member("other", "0")
    producer = rig.producer(other)
    rig.write(other, producer, "other", P[0])
    plain = rig.producer("plain")
    rig.write("plain", plain, "plain", P[0])
    rig.prepare("other", 3, 0, ("0", producer))
    rig.commit_many(NAME, 0, members)
    assert rig.fates()["other"] == rig.fates()["plain"] == {"open"}
    assert error_of(rig.commit_many("other", 3, [("0", producer)])) is Error.NONE
    assert rig.fates()["other"] == {"committed"}
    assert rig.fates()["plain"] == {"open"}


# ── exactly these producers ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_zombie_attempt_that_took_an_id_over() -> None:
    """The commit names a producer that is not open any more: nothing is committed."""
    rig = Rig()
    members = prepared(rig, 3, 0)
    zombie = id_of_member(NAME, members[1][0])
    producer = rig.producer(zombie)
    rig.write(zombie, producer, "zombie", P[0])
    answer = rig.commit_many(NAME, 0, members).answer
    assert answer.error_code == Error.PRODUCER_FENCED
    assert zombie in answer.error_message
    assert answer.last_number == -1
    assert rig.fates()["batch0-0"] == rig.fates()["batch0-2"] == {"open"}
    assert rig.fates()["batch0-1"] == {"aborted"}
    again = prepared(rig, 3, 0, run=1, attempt=1, tag="again")
    assert error_of(rig.commit_many(NAME, 0, again)) is Error.NONE
    assert fates_of(rig, "again") == {"committed"}
    assert fates_of(rig, "batch0") == fates_of(rig, "zombie") == {"aborted"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda member, producer: (member, producer._replace(producer_epoch=1)), Error.PRODUCER_FENCED),
        (lambda member, producer: (member, producer._replace(producer_id=5)), Error.INVALID_PRODUCER_ID_MAPPING),
        (lambda member, producer: ("nobody", producer), Error.INVALID_PRODUCER_ID_MAPPING),
        (lambda member, producer: ("", producer), Error.INVALID_REQUEST),
    ],
)
def test_one_wrong_name_refuses_all(change, error: Error) -> None:  # type: ignore[no-untyped-def]
    rig = Rig()
    members = prepared(rig, 3, 0)
    wrong = [members[0], change(*members[1]), members[2]]
    before = len(rig.batches)
    assert error_of(rig.commit_many(NAME, 0, wrong)) is error
    assert error_of(rig.prepare(NAME, 0, 0, *wrong)) is error
    assert len(rig.batches) == before
    assert error_of(rig.commit_many(NAME, 0, members)) is Error.NONE


def test_a_transaction_that_is_not_open_refuses_all() -> None:
    rig = Rig()
    members = prepared(rig, 2, 0)
    idle = rig.producer(id_of_member(NAME, "idle"))
    assert error_of(rig.commit_many(NAME, 0, [*members, ("idle", idle)])) is Error.INVALID_TXN_STATE
    assert error_of(rig.prepare(NAME, 0, 0, ("idle", idle))) is Error.INVALID_TXN_STATE
    assert fates_of(rig, "batch0") == {"open"}


def test_requests_that_are_none() -> None:
    rig = Rig()
    members = prepared(rig, 2, 0)
    for bad in (
        rig.commit_many(NAME, -1, members),
        rig.commit_many("", 0, []),
        rig.commit_many("x" * 201, 0, []),
        rig.commit_many("a/b", 0, []),
        rig.commit_many(NAME, 0, [members[0], members[0]]),
        rig.prepare(NAME, 0, -1),
        rig.commit_many(NAME, 0, [(str(number), ProducerEpoch(1, 1)) for number in range(TRANSACTIONS_MAX + 1)]),
    ):
        assert error_of(bad) is Error.INVALID_REQUEST
    stranger = CommitTransactionsRequestTransaction(transactional_id="orders", producer_id=1, producer_epoch=1)
    request = CommitTransactionsRequest(name=NAME, number=0, transactions=[stranger])
    waiting = rig.ask(lambda machine, token, now: machine.many.commit(token, request, now))
    assert error_of(waiting) is Error.INVALID_REQUEST


def test_no_member_commits_alone() -> None:
    rig = Rig()
    ((member, producer),) = prepared(rig, 1, 0)
    transactional_id = id_of_member(NAME, member)
    for is_new in (True, False):
        assert rig.end(transactional_id, producer, commit=True, is_new=is_new).answer.error_code == (
            Error.INVALID_TXN_STATE
        )
    assert rig.finish(transactional_id, producer, commit=False).error_code == Error.NONE  # but it may give up


def test_what_is_prepared_takes_no_more_partitions() -> None:
    rig = Rig()
    ((member, producer),) = prepared(rig, 1, 0)
    transactional_id = id_of_member(NAME, member)
    assert rig.write(transactional_id, producer, "late", P[3]) is Error.INVALID_TXN_STATE
    assert rig.verify(transactional_id, producer, P[0]).answer == {P[0]: Error.INVALID_TXN_STATE}


# ── again, and late ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_number_again_is_done_already() -> None:
    rig = Rig()
    members = prepared(rig, 3, 0)
    rig.commit_many(NAME, 0, members)
    before = len(rig.batches)
    answer = rig.commit_many(NAME, 0, members).answer
    assert (answer.error_code, answer.already_committed, answer.last_number) == (Error.NONE, True, 0)
    assert len(rig.batches) == before


def test_a_batch_that_is_written_again_after_it_was_committed() -> None:
    """Its second writing is aborted, also when it has other ids than the first."""
    rig = Rig()
    rig.commit_many(NAME, 0, prepared(rig, 3, 0))
    again = prepared(rig, 5, 0, run=1, attempt=1, tag="again")
    answer = rig.commit_many(NAME, 0, again).answer
    assert (answer.error_code, answer.already_committed) == (Error.NONE, True)
    assert fates_of(rig, "batch0") == {"committed"}
    assert fates_of(rig, "again") == {"aborted"}


def test_a_late_duplicate_of_a_commit_when_the_next_batch_has_begun() -> None:
    rig = Rig()
    first = prepared(rig, 3, 0)
    rig.commit_many(NAME, 0, first)
    second = prepared(rig, 3, 1)
    running = id_of_member(NAME, "running")
    producer = rig.producer(running)
    rig.write(running, producer, "batch1-running", P[0])
    answer = rig.commit_many(NAME, 0, first).answer
    assert (answer.error_code, answer.already_committed) == (Error.NONE, True)
    assert fates_of(rig, "batch1") == {"open"}
    rig.prepare(NAME, 1, 0, ("running", producer))
    assert error_of(rig.commit_many(NAME, 1, [*second, ("running", producer)])) is Error.NONE
    assert fates_of(rig, "batch1") == {"committed"}


def test_a_lower_number_names_the_stale_checkpoint() -> None:
    rig = Rig()
    for number in (5, 6):
        rig.commit_many(NAME, number, prepared(rig, 1, number))
    members = open_all(rig, 1, "stale")
    answer = rig.commit_many(NAME, 5, members).answer
    assert (answer.error_code, answer.last_number) == (Error.INVALID_UPDATE_VERSION, 6)
    assert "checkpoint" in answer.error_message
    assert error_of(rig.prepare(NAME, 5, 9, members[0])) is Error.INVALID_UPDATE_VERSION
    assert fates_of(rig, "stale") == {"open"}


def test_the_last_number_is_kept_for_ever() -> None:
    rig = Rig()
    rig.commit_many(NAME, 3, prepared(rig, 2, 3))
    rig.crash()
    rig.pass_time(1000 * 24 * HOUR_MS)
    rig.crash()
    assert len(rig.machine.table) == 0
    assert rig.commit_many(NAME, 3, []).answer.already_committed
    assert error_of(rig.commit_many(NAME, 2, [])) is Error.INVALID_UPDATE_VERSION


def test_a_request_deletes_the_last_number() -> None:
    rig = Rig()

    def delete(name: str) -> Error:
        return error_of(rig.ask(lambda machine, token, now: machine.many.delete(token, name, now)))

    rig.commit_many(NAME, 3, prepared(rig, 2, 3, run=9))
    assert delete("nobody") is Error.RESOURCE_NOT_FOUND
    assert delete(NAME) is Error.NONE
    assert delete(NAME) is Error.RESOURCE_NOT_FOUND
    rig.crash()
    assert rig.machine.many.describe(NAME).error_code == Error.RESOURCE_NOT_FOUND
    assert error_of(rig.commit_many(NAME, 0, prepared(rig, 2, 0))) is Error.NONE


def test_the_next_number_waits_until_the_last_is_complete() -> None:
    rig = Rig()
    first = prepared(rig, 3, 0)
    rig.is_at_once = False
    deciding = rig.commit_many(NAME, 0, first)
    second = id_of_member(NAME, "second")
    rig.init(second)
    producer = rig.state(second).producer
    rig.add(second, producer, P[0], is_new=True)
    rig.prepare(NAME, 1, 0, ("second", producer))
    waiting = rig.commit_many(NAME, 1, [("second", producer)])
    repeated = rig.commit_many(NAME, 0, first)
    deleting = rig.ask(lambda machine, token, now: machine.many.delete(token, NAME, now))
    rig.commit()
    assert error_of(deciding) is Error.NONE
    assert error_of(waiting) is error_of(deleting) is Error.CONCURRENT_TRANSACTIONS
    assert repeated.answer.already_committed
    described = rig.machine.many.describe(NAME)
    assert (described.last_number, described.is_complete) == (0, False)
    states = [(each.transaction_state, each.prepared_number) for each in described.transactions]
    assert states == [("PrepareCommit", -1)] * 3 + [("Ongoing", 1)]
    rig.settle()
    assert rig.machine.many.describe(NAME).is_complete
    committing = rig.commit_many(NAME, 1, [("second", producer)])
    rig.settle()
    assert error_of(committing) is Error.NONE


# ── leftovers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_aborts_everything_else_under_the_name() -> None:
    rig = Rig()
    members = prepared(rig, 3, 0)
    speculative = prepared(rig, 2, 0, attempt=1, tag="speculative")
    abandoned = open_all(rig, 1, "abandoned", attempt=2)
    assert speculative
    assert abandoned
    rig.commit_many(NAME, 0, members)
    assert fates_of(rig, "batch0") == {"committed"}
    assert fates_of(rig, "speculative") == fates_of(rig, "abandoned") == {"aborted"}


def test_a_run_with_fewer_ids_than_the_one_before_it() -> None:
    """The first prepare of the new run aborts what the old one had prepared, and leaves alone who still writes."""
    rig = Rig()
    prepared(rig, 5, 0, run=1)
    new = open_all(rig, 2, "new", attempt=1)
    assert fates_of(rig, "batch0") == {"open"}
    assert error_of(rig.prepare(NAME, 0, 2, new[0])) is Error.NONE
    assert fates_of(rig, "batch0") == {"aborted"}
    assert fates_of(rig, "new") == {"open"}
    rig.prepare(NAME, 0, 2, new[1])
    assert error_of(rig.commit_many(NAME, 0, new)) is Error.NONE
    assert fates_of(rig, "new") == {"committed"}


def test_a_run_can_be_announced_before_anything_is_written() -> None:
    rig = Rig()
    prepared(rig, 3, 0, run=1)
    open_all(rig, 1, "zombie", attempt=3)
    assert error_of(rig.prepare(NAME, 0, 2)) is Error.NONE
    assert fates_of(rig, "batch0") == fates_of(rig, "zombie") == {"aborted"}
    new = prepared(rig, 2, 0, run=2, tag="new")
    assert error_of(rig.prepare(NAME, 0, 2)) is Error.NONE  # a second time it is nothing new
    assert error_of(rig.commit_many(NAME, 0, new)) is Error.NONE


def test_an_older_run_comes_too_late() -> None:
    rig = Rig()
    old = open_all(rig, 2, "old")
    new = prepared(rig, 1, 0, run=2, attempt=1, tag="new")
    answer = rig.prepare(NAME, 0, 1, old[0]).answer
    assert answer.error_code == Error.PRODUCER_FENCED
    assert fates_of(rig, "new") == {"open"}
    assert error_of(rig.prepare(NAME, 1, 0, old[0])) is Error.NONE  # a later batch is a later run
    assert fates_of(rig, "new") == {"aborted"}
    assert error_of(rig.commit_many(NAME, 0, new)) is Error.PRODUCER_FENCED


def test_prepare_again_is_nothing_new() -> None:
    rig = Rig()
    members = prepared(rig, 2, 0)
    before = len(rig.batches)
    assert error_of(rig.prepare(NAME, 0, 0, *members)) is Error.NONE
    assert len(rig.batches) == before


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_longer_than_the_transaction_timeout() -> None:
    """What is prepared waits for the others; what still writes has its own timeout."""
    rig = Rig()
    early = prepared(rig, 2, 0)
    rig.pass_time(20 * 60_000)
    slow = open_all(rig, 1, "slow", attempt=1)
    rig.pass_time(61_000)
    assert fates_of(rig, "slow") == {"aborted"}
    assert error_of(rig.prepare(NAME, 0, 0, slow[0])) is Error.PRODUCER_FENCED
    late = open_all(rig, 1, "late", attempt=2)
    rig.prepare(NAME, 0, 0, late[0])
    rig.crash()
    rig.pass_time(59 * 60_000)
    assert fates_of(rig, "batch0") == {"open"}
    assert error_of(rig.commit_many(NAME, 0, [*early, *late])) is Error.NONE
    assert fates_of(rig, "batch0") == fates_of(rig, "late") == {"committed"}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_name_times_out_as_a_whole(is_restarted: bool) -> None:
    rig = Rig(TransactionSettings(prepared_timeout_ms=100_000))
    members = prepared(rig, 2, 0)
    rig.pass_time(50_000)
    members += prepared(rig, 1, 0, attempt=1)
    if is_restarted:
        rig.crash()
    rig.pass_time(99_999)
    assert fates_of(rig, "batch0") == {"open"}
    rig.pass_time(1)
    assert fates_of(rig, "batch0") == {"aborted"}
    assert error_of(rig.commit_many(NAME, 0, members)) is Error.PRODUCER_FENCED
    assert error_of(rig.commit_many(NAME, 0, prepared(rig, 2, 0, run=0, tag="new"))) is Error.NONE


def test_epochs_run_out_by_a_commit() -> None:
    rig = Rig()
    transactional_id = id_of_member(NAME, "0")
    last = ProducerEpoch(7, EPOCH_MAX - 1)
    rig.put(
        Transaction(
            transactional_id=transactional_id,
            producer_id=7,
            producer_epoch=EPOCH_MAX - 1,
            timeout_ms=60_000,
            last_update_ms=rig.now.wall_ms,
        )
    )
    rig.write(transactional_id, last, "a", P[0])
    rig.prepare(NAME, 0, 0, ("0", last))
    assert error_of(rig.commit_many(NAME, 0, [("0", last)])) is Error.NONE
    assert rig.fates() == {"a": {"committed"}}
    assert rig.producer(transactional_id) == ProducerEpoch(1001, 0)


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crash_at_every_write_leaves_all_committed_or_none() -> None:
    """The same commit, cut short after each batch of the log and after each marker; then asked again."""

    def until_commit() -> tuple[Rig, Members]:
        rig = Rig()
        members = prepared(rig, 4, 0)
        open_all(rig, 1, "other", attempt=1)
        rig.is_at_once = False
        return rig, members

    rig, members = until_commit()
    before = len(rig.batches)
    rig.commit_many(NAME, 0, members)
    rig.settle()
    assert len(rig.batches) > before + 4
    outcomes = set()
    for kept in range(before, len(rig.batches) + 1):
        for markers in range(12):
            rig, members = until_commit()
            waiting = rig.commit_many(NAME, 0, members)
            if kept > before:
                rig.commit()
                rig.write_markers(markers)
            rig.crash(kept)
            rig.settle()
            decided = fates_of(rig, "batch0")
            assert len(decided) == 1, f"{decided} with {kept} batches and {markers} markers"
            outcomes |= decided
            assert decided == {"committed"} or not waiting.answers
            again = rig.commit_many(NAME, 0, members)
            rig.settle()
            assert error_of(again) is Error.NONE
            assert again.answer.already_committed == (decided == {"committed"})
            assert fates_of(rig, "batch0") == {"committed"}
            assert fates_of(rig, "other") == {"aborted"}
    assert outcomes == {"committed", "open"}


def test_a_compacted_log_says_the_same() -> None:
    """Of each key only the newest record is left: a decision may come before ids that have gone on since."""
    rig = Rig()
    for number in range(3):
        rig.commit_many(NAME, number, prepared(rig, 3, number, attempt=number))
    last = prepared(rig, 3, 3)
    rig.is_at_once = False
    rig.commit_many(NAME, 3, last)
    rig.commit()
    expected = {each.transactional_id: each for each in rig.machine.table}
    rig.compact()
    rig.crash()
    assert {each.transactional_id: each for each in rig.machine.table} == expected
    assert sum(each.state in PREPARED_STATES for each in rig.machine.table) == 3
    rig.settle()
    assert fates_of(rig, "batch3") == {"committed"}
    assert rig.machine.many.describe(NAME).last_number == 3


def test_a_decision_touches_nobody_who_has_gone_on() -> None:
    """Replayed where its transactions are open at other epochs, or not known at all, it decides nothing."""
    rig = Rig()
    members = prepared(rig, 2, 0)
    rig.commit_many(NAME, 0, members)
    decision = next(
        record
        for record in rig.records()
        if isinstance(record.key, CommitDecisionKey) and isinstance(record.value, CommitDecisionValue)
    )
    assert len(decision.value.transactions) == 2
    open_all(rig, 2, "next")
    rig.machine.replay(decision, None, 0)
    assert all(each.is_ongoing for each in rig.machine.table)
