"""The shard: partitions, markers, timeouts, ids that are forgotten, reading the log again, and looking."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import Moment, ProducerEpoch, StateRecord
from penstock.transactions.names import id_problem, member_of, placed_by
from penstock.transactions.records import TRANSACTIONS_CODEC
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.shard import FORGOTTEN_AT_ONCE_MAX, TransactionShard
from penstock.transactions.transaction import Batch, State, Transaction
from penstock.wire.messages.k66_list_transactions import ListTransactionsRequest
from penstock.wire.messages.transaction_topic_records import TransactionLogKey, TransactionLogValue

from .rig import Rig

ID = "orders"
P = [TopicPartition("t", index) for index in range(4)]
HOUR_MS = 3_600_000


def plain(transactional_id: str, **values: object) -> Transaction:
    given = {"producer_id": 7, "producer_epoch": 0, "timeout_ms": 60_000, "last_update_ms": 0, **values}
    return Transaction(transactional_id=transactional_id, **given)  # type: ignore[arg-type]


# ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_partitions_are_added_and_verified() -> None:
    rig = Rig()
    producer = rig.producer(ID)
    assert rig.verify(ID, producer, P[0]).answer == {P[0]: Error.TRANSACTION_ABORTABLE}
    assert rig.add(ID, producer, P[0], P[1], is_new=False).answer is Error.NONE
    written = len(rig.batches)
    assert rig.add(ID, producer, P[1], is_new=False).answer is Error.NONE
    assert len(rig.batches) == written  # nothing new
    assert rig.add(ID, producer, P[1], P[2], is_new=False).answer is Error.NONE
    assert rig.state(ID).partitions == frozenset(P[:3])
    assert rig.verify(ID, producer, P[2]).answer == {P[2]: Error.NONE}
    assert rig.verify(ID, producer, P[3]).answer == {P[3]: Error.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize(
    ("transactional_id", "producer", "error"),
    [
        ("nobody", ProducerEpoch(1001, 0), Error.INVALID_PRODUCER_ID_MAPPING),
        (ID, ProducerEpoch(55, 0), Error.INVALID_PRODUCER_ID_MAPPING),
        (ID, ProducerEpoch(1001, 1), Error.PRODUCER_FENCED),
    ],
)
def test_strangers_get_nothing(transactional_id: str, producer: ProducerEpoch, error: Error) -> None:
    rig = Rig()
    rig.producer(ID)
    assert rig.add(transactional_id, producer, P[0], is_new=True).answer is error
    assert rig.verify(transactional_id, producer, P[0]).answer == {P[0]: error}
    assert rig.state(ID).state is State.EMPTY


def test_a_transaction_that_ends_takes_no_partitions() -> None:
    rig = Rig(is_at_once=False)
    rig.init(ID)
    producer = rig.state(ID).producer
    rig.add(ID, producer, P[0], is_new=False)
    rig.end(ID, producer, commit=True, is_new=False)
    adding, verifying = rig.add(ID, producer, P[0], is_new=False), rig.verify(ID, producer, P[0])
    rig.settle()
    assert adding.answer is Error.CONCURRENT_TRANSACTIONS
    assert verifying.answer == {P[0]: Error.CONCURRENT_TRANSACTIONS}
    again = rig.add(ID, producer, P[1], is_new=False)
    rig.settle()
    assert again.answer is Error.NONE
    assert rig.state(ID).partitions == frozenset([P[1]])


# ── markers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_client_is_told_before_the_markers_are_written() -> None:
    rig = Rig(is_at_once=False)
    rig.init(ID)
    producer = rig.state(ID).producer
    rig.add(ID, producer, *P[:2], is_new=True)
    ending = rig.end(ID, producer, commit=True, is_new=True)
    assert not ending.answers  # but not before the decision is safe
    rig.commit()
    assert ending.answer.error_code == Error.NONE
    rig.write_markers(1)
    assert rig.state(ID).state is State.PREPARE_COMMIT
    rig.write_markers(1)
    assert rig.state(ID).state is State.COMPLETE_COMMIT


def test_after_a_restart_what_was_decided_is_carried_out() -> None:
    rig = Rig(is_at_once=False)
    rig.init(ID)
    producer = rig.state(ID).producer
    rig.add(ID, producer, *P[:2], is_new=True)
    for name in P[:2]:
        rig.append(name, producer, "a")
    rig.end(ID, producer, commit=True, is_new=True)
    rig.commit()
    rig.write_markers(1)
    rig.crash()
    assert rig.state(ID).state is State.PREPARE_COMMIT
    rig.settle()
    assert rig.fates() == {"a": {"committed"}}
    assert rig.state(ID).state is State.COMPLETE_COMMIT


def test_markers_of_a_decision_that_is_over_complete_nothing() -> None:
    rig = Rig(is_at_once=False)
    rig.init(ID)
    producer = rig.state(ID).producer
    rig.add(ID, producer, P[0], is_new=False)
    rig.end(ID, producer, commit=True, is_new=False)
    rig.commit()
    (old, _) = rig.marker_work[0]
    rig.settle()
    rig.add(ID, producer, P[1], is_new=False)
    rig.end(ID, producer, commit=False, is_new=False)
    rig.run(rig.machine.markers_written([old], rig.now))
    assert rig.state(ID).state is State.PREPARE_ABORT


def test_a_log_of_kafka_with_a_decision_without_partitions() -> None:
    rig = Rig()
    rig.put(plain(ID, state=State.PREPARE_ABORT, start_ms=5))
    rig.crash()
    assert rig.state(ID).state is State.COMPLETE_ABORT


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_open_transaction_is_aborted_by_its_timeout() -> None:
    rig = Rig()
    producer = rig.producer(ID, timeout_ms=30_000)
    rig.write(ID, producer, "a", P[0])
    rig.pass_time(20_000)
    rig.write(ID, producer, "a", P[1])  # does not make it longer
    rig.pass_time(9_999)
    assert rig.state(ID).is_ongoing
    rig.pass_time(1)
    assert rig.state(ID).state is State.COMPLETE_ABORT
    assert rig.fates() == {"a": {"aborted"}}
    assert rig.write(ID, producer, "b", P[0]) is Error.PRODUCER_FENCED
    assert rig.finish(ID, producer, commit=True).error_code == Error.INVALID_TXN_STATE
    answer = rig.finish(ID, producer, commit=False)
    assert (answer.error_code, answer.producer_epoch) == (Error.NONE, 1)


def test_a_transaction_that_has_ended_does_not_time_out() -> None:
    rig = Rig()
    producer = rig.producer(ID, timeout_ms=30_000)
    rig.write(ID, producer, "a", P[0])
    answer = rig.finish(ID, producer, commit=True)
    rig.pass_time(20_000)
    second = ProducerEpoch(answer.producer_id, answer.producer_epoch)
    rig.write(ID, second, "b", P[0])
    rig.pass_time(29_999)
    assert rig.finish(ID, second, commit=True).error_code == Error.NONE
    rig.pass_time(HOUR_MS)
    assert rig.fates() == {"a": {"committed"}, "b": {"committed"}}


def test_timeouts_go_on_after_a_restart() -> None:
    rig = Rig()
    producer = rig.producer(ID, timeout_ms=30_000)
    rig.write(ID, producer, "a", P[0])
    rig.pass_time(20_000)
    rig.crash()
    rig.pass_time(9_999)
    assert rig.state(ID).is_ongoing
    rig.pass_time(1)
    assert rig.fates() == {"a": {"aborted"}}


def test_timeouts_do_not_trust_the_wall_clock() -> None:
    rig = Rig()
    producer = rig.producer(ID, timeout_ms=30_000)
    rig.write(ID, producer, "a", P[0])
    rig.now = Moment(rig.now.monotonic_ms, rig.now.wall_ms + 10 * HOUR_MS)
    rig.pass_time(29_999)
    assert rig.state(ID).is_ongoing
    rig.now = Moment(rig.now.monotonic_ms, rig.now.wall_ms - 20 * HOUR_MS)
    rig.crash()  # it cannot be known how long it has been open: at most as long as it may be
    rig.pass_time(30_000)
    assert rig.fates() == {"a": {"aborted"}}


def test_transactions_are_looked_at_only_so_often() -> None:
    rig = Rig(TransactionSettings(timeout_check_interval_ms=10_000))
    for number in range(3):
        producer = rig.producer(f"id-{number}", timeout_ms=10_000)
        rig.write(f"id-{number}", producer, number, P[0])
        rig.pass_time(1000)
    rig.pass_time(7000)
    assert rig.fates() == {0: {"aborted"}, 1: {"open"}, 2: {"open"}}
    rig.pass_time(9_999)
    assert rig.fates()[1] == {"open"}
    rig.pass_time(1)
    assert rig.fates() == {0: {"aborted"}, 1: {"aborted"}, 2: {"aborted"}}


def test_unused_ids_are_forgotten() -> None:
    rig = Rig(TransactionSettings(id_expiration_ms=24 * HOUR_MS))
    for transactional_id in ("empty", "done", "open", "used"):
        producer = rig.producer(transactional_id, timeout_ms=900_000)
        if transactional_id != "empty":
            rig.write(transactional_id, producer, "a", P[0])
        if transactional_id == "done":
            rig.finish(transactional_id, producer, commit=True)
    rig.crash()
    rig.pass_time(23 * HOUR_MS)
    rig.producer("used")
    rig.put(plain("stuck", state=State.PREPARE_COMMIT, partitions=frozenset(P)))
    rig.pass_time(2 * HOUR_MS)
    assert {each.transactional_id for each in rig.machine.table} == {"used", "stuck"}
    rig.crash()
    assert {each.transactional_id for each in rig.machine.table} == {"used", "stuck"}
    assert rig.producer("empty") == ProducerEpoch(1005, 0)


def test_very_many_unused_ids_are_forgotten_in_portions() -> None:
    rig = Rig()
    count = 2 * FORGOTTEN_AT_ONCE_MAX + 1
    rig.put(*(plain(f"id-{number}") for number in range(count)))
    rig.crash()
    before = len(rig.batches)
    rig.pass_time(HOUR_MS)
    assert len(rig.machine.table) == 0
    assert [len(batch) for batch in rig.batches[before:]] == [FORGOTTEN_AT_ONCE_MAX, FORGOTTEN_AT_ONCE_MAX, 1]


# ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_record_says_everything() -> None:
    everything = plain(
        ID,
        state=State.ONGOING,
        partitions=frozenset([*P, TopicPartition("u", 3)]),
        start_ms=5,
        previous_producer_id=6,
        next_producer_id=8,
        last_producer_epoch=3,
        protocol=2,
        batch=Batch(11, 12),
        last_update_ms=44,
    )
    key, value = TRANSACTIONS_CODEC.encode(everything.record())
    assert key[:2] == b"\0\0"
    assert value is not None
    assert value[:2] == b"\0\1"
    decoded = TRANSACTIONS_CODEC.decode(key, value)
    assert decoded is not None
    assert Transaction.of_record(ID, decoded.value) == everything


def test_records_that_are_not_understood_are_passed_over() -> None:
    machine = TransactionShard(0, TransactionSettings())
    for status in (6, 7, 8, -1, 127):
        key, value = TransactionLogKey(transactional_id=ID), TransactionLogValue(transaction_status=status)
        machine.replay(StateRecord(key, value), None, 0)
    assert len(machine.table) == 0


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_describe() -> None:
    rig = Rig()
    producer = rig.producer(ID, timeout_ms=777)
    rig.write(ID, producer, "a", P[2], P[0], TopicPartition("other", 5))
    found = rig.machine.describe(ID)
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (Error.NONE, "Ongoing", 777)
    assert (found.producer_id, found.producer_epoch) == producer
    assert found.transaction_start_time_ms == rig.now.wall_ms
    assert {each.topic: each.partitions for each in found.topics} == {"t": [0, 2], "other": [5]}
    assert rig.machine.describe("none").error_code == Error.TRANSACTIONAL_ID_NOT_FOUND


def test_list() -> None:
    rig = Rig()
    first, second = rig.producer("first"), rig.producer("second")
    rig.write("second", second, "a", P[0])
    rig.pass_time(1000)

    def listed(**filters: object) -> set[str]:
        request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
        return {each.transactional_id for each in rig.machine.list_transactions(request, rig.now.wall_ms)}

    assert listed() == {"first", "second"}
    assert listed(state_filters=["Ongoing", "Nonsense"]) == {"second"}
    assert listed(state_filters=["Nonsense"]) == set()
    assert listed(producer_id_filters=[first.producer_id]) == {"first"}
    assert listed(state_filters=["Ongoing"], duration_filter=999) == {"second"}
    assert listed(state_filters=["Ongoing"], duration_filter=1000) == set()


def test_names_of_states() -> None:
    assert [state.label for state in State][2:6] == ["PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]


# ── the parts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ids_with_a_name_are_placed_by_it() -> None:
    assert placed_by("orders") == "orders"
    assert placed_by("a/b") == "a/b"
    assert placed_by("penstock-many:a/b/c") == placed_by("penstock-many:a/d") == placed_by("penstock-many:a") == "a"
    assert member_of("penstock-many:a/b/c") == ("a", "b/c")
    assert id_problem("penstock-many:a/b/c") is None
    for bad in (
        "",
        "penstock-many:a",
        "penstock-many:/b",
        f"penstock-many:{'x' * 201}/1",
        f"penstock-many:a/{'x' * 101}",
    ):
        assert id_problem(bad)
