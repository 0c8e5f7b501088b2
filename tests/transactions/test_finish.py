"""EndTxn in both protocols: the table of states, requests that come again or late, and epochs that run out."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.transactions.transaction import EPOCH_MAX, SECOND_PROTOCOL, State, Transaction

from .rig import Rig

ID = "orders"
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FENCED, INVALID, NONE, BUSY = (
    Error.PRODUCER_FENCED,
    Error.INVALID_TXN_STATE,
    Error.NONE,
    Error.CONCURRENT_TRANSACTIONS,
)


def transaction(state: State, epoch: int = 5, **values: object) -> Transaction:
    partitions = frozenset() if state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT) else frozenset([P0])
    return Transaction(
        transactional_id=ID,
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=60_000,
        last_update_ms=1_700_000_000_000,
        state=state,
        partitions=partitions,
        start_ms=1_700_000_000_000,
        previous_producer_id=7,
        protocol=SECOND_PROTOCOL,
        **values,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("state", "abort_again", "abort", "commit_again", "commit"),
    [
        (State.EMPTY, FENCED, NONE, FENCED, INVALID),
        (State.ONGOING, FENCED, NONE, FENCED, NONE),
        (State.PREPARE_COMMIT, INVALID, FENCED, BUSY, FENCED),
        (State.PREPARE_ABORT, BUSY, FENCED, INVALID, FENCED),
        (State.COMPLETE_COMMIT, INVALID, NONE, NONE, INVALID),
        (State.COMPLETE_ABORT, NONE, NONE, INVALID, INVALID),
    ],
)
def test_the_second_protocol(
    state: State, abort_again: Error, abort: Error, commit_again: Error, commit: Error
) -> None:
    asked = {(False, 4): abort_again, (False, 5): abort, (True, 4): commit_again, (True, 5): commit}
    for (is_commit, epoch), error in asked.items():
        rig = Rig()
        rig.put(transaction(state))
        length = len(rig.batches)
        answer = rig.finish(ID, ProducerEpoch(7, epoch), commit=is_commit)
        assert answer.error_code == error, (is_commit, epoch)
        is_end = error is NONE and epoch == 5
        if error is NONE:
            assert (answer.producer_id, answer.producer_epoch) == (7, 6 if is_end else 5)
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        assert (len(rig.batches) > length) == is_end
        if is_end:
            ended = rig.state(ID)
            assert ended.state is (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT)
            assert (ended.producer_epoch, ended.last_producer_epoch, ended.partitions) == (6, 5, frozenset())


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (State.EMPTY, INVALID, INVALID),
        (State.ONGOING, NONE, NONE),
        (State.PREPARE_COMMIT, INVALID, BUSY),
        (State.PREPARE_ABORT, BUSY, INVALID),
        (State.COMPLETE_COMMIT, INVALID, NONE),
        (State.COMPLETE_ABORT, NONE, INVALID),
    ],
)
def test_the_first_protocol(state: State, abort: Error, commit: Error) -> None:
    for is_commit, error in ((False, abort), (True, commit)):
        for epoch in (4, 5, 6):
            rig = Rig()
            rig.put(transaction(state))
            answer = rig.end(ID, ProducerEpoch(7, epoch), commit=is_commit, is_new=False).answer
            assert answer.error_code == (error if epoch == 5 else FENCED)
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
            assert rig.state(ID).producer_epoch == 5


def test_a_late_end_cannot_touch_the_next_transaction() -> None:
    """KAFKA-17754."""
    rig = Rig()
    first = rig.producer(ID)
    rig.write(ID, first, "first", P0)
    answer = rig.finish(ID, first, commit=True)
    second = ProducerEpoch(answer.producer_id, answer.producer_epoch)
    rig.write(ID, second, "second", P0)
    for commit in (True, False):
        assert rig.finish(ID, first, commit=commit).error_code == FENCED
    assert rig.write(ID, first, "late", P0) is FENCED
    assert not rig.append(P0, first, "late")  # nor if it is on its way to the partition already
    assert rig.state(ID).is_ongoing
    rig.finish(ID, second, commit=False)
    assert rig.fates() == {"first": {"committed"}, "second": {"aborted"}}


def test_an_end_of_the_producer_before_is_not_taken_for_a_repeated_one() -> None:
    """The new producer speaks the first protocol, so its epoch stays, and is one above that of the old one."""
    rig = Rig()
    old = rig.producer(ID)
    new = rig.producer(ID)
    rig.add(ID, new, P0, is_new=False)
    rig.end(ID, new, commit=False, is_new=False)
    assert rig.state(ID).producer == new
    assert rig.finish(ID, old, commit=False).error_code == FENCED


def test_epochs_run_out_at_the_end_of_a_transaction() -> None:
    rig = Rig()
    last = ProducerEpoch(7, EPOCH_MAX - 1)
    rig.put(transaction(State.EMPTY, epoch=EPOCH_MAX - 1))
    rig.write(ID, last, "a", P0)
    answer = rig.finish(ID, last, commit=True)
    assert answer.error_code == NONE
    assert (answer.producer_id, answer.producer_epoch) == (1001, 0)
    again = rig.finish(ID, last, commit=True)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (NONE, 1001, 0)
    assert rig.finish(ID, last, commit=False).error_code == INVALID
    assert rig.write(ID, ProducerEpoch(1001, 0), "b", P0) is NONE
    assert rig.finish(ID, last, commit=True).error_code == Error.INVALID_PRODUCER_ID_MAPPING
    assert rig.finish(ID, ProducerEpoch(1001, 0), commit=True).error_code == NONE
    assert rig.fates() == {"a": {"committed"}, "b": {"committed"}}


def test_the_answer_says_the_new_producer_id_before_the_markers_are_written() -> None:
    rig = Rig(is_at_once=False)
    last = ProducerEpoch(7, EPOCH_MAX - 1)
    rig.put(transaction(State.ONGOING, epoch=EPOCH_MAX - 1))
    waiting = rig.end(ID, last, commit=True, is_new=True)
    rig.commit()
    assert (waiting.answer.producer_id, waiting.answer.producer_epoch) == (1001, 0)
    assert rig.state(ID).state is State.PREPARE_COMMIT
    repeated = rig.end(ID, last, commit=True, is_new=True)
    rig.settle()
    assert repeated.answer.error_code == BUSY
    assert rig.state(ID).producer == ProducerEpoch(1001, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_epochs_run_out_by_a_timeout(commit: bool) -> None:
    """The broker ends it with the last epoch; whoever asks then gets a new producer id."""
    rig = Rig()
    last = ProducerEpoch(7, EPOCH_MAX - 1)
    rig.put(transaction(State.EMPTY, epoch=EPOCH_MAX - 1))
    rig.write(ID, last, "a", P0)
    rig.pass_time(100_000)
    assert rig.state(ID).state is State.COMPLETE_ABORT
    assert rig.state(ID).producer_epoch == EPOCH_MAX
    for error in (rig.write(ID, last, "b", P0), rig.write(ID, ProducerEpoch(7, EPOCH_MAX), "c", P0)):
        assert error is FENCED
    assert rig.finish(ID, ProducerEpoch(7, EPOCH_MAX), commit=commit).error_code == FENCED
    if commit:
        assert rig.finish(ID, last, commit=True).error_code == INVALID
        answer = rig.init(ID, last).answer
        assert (answer.error_code, answer.producer_epoch) == (NONE, 0)
        assert answer.producer_id > 1000
        assert rig.init(ID, last).answer == answer
    else:
        for _ in range(2):
            answer = rig.finish(ID, last, commit=False)
            assert (answer.error_code, answer.producer_epoch) == (NONE, 0)
            assert answer.producer_id > 1000
            assert rig.state(ID).producer == ProducerEpoch(answer.producer_id, 0)


def test_without_a_producer_id_in_hand_the_client_asks_again() -> None:
    rig = Rig()
    last = ProducerEpoch(7, EPOCH_MAX - 1)
    rig.put(transaction(State.ONGOING, epoch=EPOCH_MAX - 1))
    rig.machine.is_exhausted = lambda _id: False  # type: ignore[method-assign]
    assert rig.finish(ID, last, commit=True).error_code == BUSY
    assert rig.state(ID).is_ongoing
