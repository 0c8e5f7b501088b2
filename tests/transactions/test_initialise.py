"""InitProducerId with a transactional id."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.transaction import EPOCH_MAX, State, Transaction

from .rig import Rig

ID = "orders"
P0 = TopicPartition("t", 0)


def answer_of(rig: Rig, named: ProducerEpoch | None = None, **values: int) -> tuple[Error, int, int]:
    answer = rig.init(ID, named, **values).answer
    return Error(answer.error_code), answer.producer_id, answer.producer_epoch


def test_each_producer_gets_the_next_epoch() -> None:
    rig = Rig()
    assert [answer_of(rig) for _ in range(3)] == [(Error.NONE, 1001, epoch) for epoch in range(3)]
    rig.crash()
    assert answer_of(rig) == (Error.NONE, 1001, 3)


def test_a_producer_that_goes_on() -> None:
    rig = Rig()
    answer_of(rig)
    assert answer_of(rig, ProducerEpoch(1001, 0)) == (Error.NONE, 1001, 1)
    rig.crash()
    assert answer_of(rig, ProducerEpoch(1001, 0)) == (Error.NONE, 1001, 1)  # also when the broker was restarted
    assert answer_of(rig, ProducerEpoch(1001, 1)) == (Error.NONE, 1001, 2)
    assert answer_of(rig, ProducerEpoch(1001, 0)) == (Error.PRODUCER_FENCED, -1, -1)
    assert answer_of(rig) == (Error.NONE, 1001, 3)
    for named in (ProducerEpoch(1001, 2), ProducerEpoch(1001, 4), ProducerEpoch(55, 3), ProducerEpoch(1001, -1)):
        assert answer_of(rig, named) == (Error.PRODUCER_FENCED, -1, -1)


def test_the_answer_to_an_end_got_lost_and_the_producer_begins_anew() -> None:
    rig = Rig()
    first = rig.producer(ID)
    rig.write(ID, first, "a", P0)
    rig.finish(ID, first, commit=True)
    assert answer_of(rig, first) == (Error.NONE, first.producer_id, 1)


def test_an_open_transaction_is_aborted_first() -> None:
    rig = Rig()
    first = rig.producer(ID)
    rig.write(ID, first, "a", P0)
    assert answer_of(rig) == (Error.CONCURRENT_TRANSACTIONS, -1, -1)
    assert rig.fates() == {"a": {"aborted"}}
    assert answer_of(rig) == (Error.NONE, first.producer_id, 2)


def test_a_request_that_comes_late_aborts_nothing() -> None:
    rig = Rig()
    first = rig.producer(ID)
    _, producer_id, epoch = answer_of(rig, first)
    second = ProducerEpoch(producer_id, epoch)
    rig.write(ID, second, "a", P0)
    assert answer_of(rig, first) == (Error.PRODUCER_FENCED, -1, -1)
    assert rig.state(ID).is_ongoing
    assert answer_of(rig, second) == (Error.CONCURRENT_TRANSACTIONS, -1, -1)
    assert rig.fates() == {"a": {"aborted"}}


@pytest.mark.parametrize("commit", [True, False])
def test_while_it_ends_the_producer_waits(commit: bool) -> None:
    rig = Rig(is_at_once=False)
    waiting = rig.init(ID)
    rig.commit()
    producer = ProducerEpoch(waiting.answer.producer_id, waiting.answer.producer_epoch)
    rig.add(ID, producer, P0, is_new=True)
    rig.end(ID, producer, commit=commit, is_new=True)
    busy = rig.init(ID)
    stranger = rig.init(ID, ProducerEpoch(5, 5))
    rig.settle()
    assert busy.answer.error_code == Error.CONCURRENT_TRANSACTIONS
    assert stranger.answer.error_code == Error.PRODUCER_FENCED
    assert answer_of_when_settled(rig) == (Error.NONE, producer.producer_id, 2)


def answer_of_when_settled(rig: Rig) -> tuple[Error, int, int]:
    waiting = rig.init(ID)
    rig.settle()
    return Error(waiting.answer.error_code), waiting.answer.producer_id, waiting.answer.producer_epoch


@pytest.mark.parametrize("epoch", [EPOCH_MAX - 1, EPOCH_MAX])
def test_epochs_run_out(epoch: int) -> None:
    rig = Rig()
    rig.put(Transaction(transactional_id=ID, producer_id=7, producer_epoch=epoch, timeout_ms=1, last_update_ms=0))
    last = ProducerEpoch(7, EPOCH_MAX - 1)
    assert answer_of(rig, last) == (Error.NONE, 1001, 0)
    assert answer_of(rig, last) == (Error.NONE, 1001, 0)
    assert answer_of(rig, ProducerEpoch(7, 5)) == (Error.PRODUCER_FENCED, -1, -1)
    assert answer_of(rig, ProducerEpoch(1001, 0)) == (Error.NONE, 1001, 1)
    rig.put(Transaction(transactional_id=ID, producer_id=7, producer_epoch=epoch, timeout_ms=1, last_update_ms=0))
    assert answer_of(rig) == (Error.NONE, 1002, 0)
    assert answer_of(rig, last) == (Error.PRODUCER_FENCED, -1, -1)


def test_without_a_producer_id_in_hand_the_client_asks_again() -> None:
    rig = Rig()
    rig.machine.wants_producer_id = lambda _id: False  # type: ignore[method-assign]
    assert answer_of(rig) == (Error.CONCURRENT_TRANSACTIONS, -1, -1)
    rig.put(Transaction(transactional_id=ID, producer_id=7, producer_epoch=EPOCH_MAX, timeout_ms=1, last_update_ms=0))
    assert answer_of(rig) == (Error.CONCURRENT_TRANSACTIONS, -1, -1)


def test_timeouts_within_bounds() -> None:
    rig = Rig(TransactionSettings(timeout_ms_max=1000))
    for timeout_ms in (0, -5, 1001):
        assert answer_of(rig, timeout_ms=timeout_ms)[0] is Error.INVALID_TRANSACTION_TIMEOUT
    assert answer_of(rig, timeout_ms=1000)[0] is Error.NONE
    assert rig.state(ID).timeout_ms == 1000


@pytest.mark.parametrize(
    "transactional_id", ["", "penstock-many:", "penstock-many:a", "penstock-many:/b", "penstock-many:a/"]
)
def test_ids_that_are_none(transactional_id: str) -> None:
    assert Rig().init(transactional_id).answer.error_code == Error.INVALID_REQUEST


def test_state_of_a_new_producer() -> None:
    rig = Rig()
    producer = rig.producer(ID)
    rig.write(ID, producer, "a", P0)
    rig.finish(ID, producer, commit=True)
    rig.producer(ID, timeout_ms=5)
    found = rig.state(ID)
    assert (found.state, found.start_ms, found.partitions, found.timeout_ms) == (State.EMPTY, -1, frozenset(), 5)
