"""Transactions over the wire: InitProducerId with an id, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and looking."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.base.errors import Error

WAIT_S = 10
OWN = {
    "transaction_states*.transaction_start_time_ms": "each broker's own clock",
    "transaction_states*.topics*.partitions": "a set, in any order",
}
NOBODY = {"transaction_states[[]*": "known by the producer's id, which is 0 for none and not the producer 0"}
NEW = {"producer_id": -1, "producer_epoch": -1}


@pytest.fixture
def transactions(client: Any) -> Transactions:
    return Transactions(client)


class Transactions:
    """A transactional id and its producer, on one broker or on both."""

    def __init__(self, client: Any, suffix: str = "-tx") -> None:
        self.client = client
        self.id = client.prefix + suffix
        self.producer_id = -1
        self.epoch = -1
        client.ask(
            "FindCoordinator",
            6,
            key_type=1,
            coordinator_keys=[self.id],
            until=lambda answer: answer.coordinators[0].error_code == Error.NONE,
        )
        deadline = time.monotonic() + WAIT_S
        while self._describe(not_kafka="ours is waited for").error_code == Error.COORDINATOR_LOAD_IN_PROGRESS:
            assert time.monotonic() < deadline
        self._describe(
            until=lambda answer: answer.transaction_states[0].error_code == Error.TRANSACTIONAL_ID_NOT_FOUND,
            differs=NOBODY,
        )

    def init(self, version: int = 5, *, timeout_ms: int = 60_000, **named: int) -> Error:
        busy = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)
        answer = self.client.ask(
            "InitProducerId",
            version,
            transactional_id=self.id,
            transaction_timeout_ms=timeout_ms,
            until=lambda answer: answer.error_code not in busy,
            **{**NEW, **named},
        )
        if answer.error_code == Error.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return Error(answer.error_code)

    def add(self, version: int, topic: str, *indexes: int, **other: Any) -> list[Error]:
        values = {"id": self.id, "producer_id": self.producer_id, "epoch": self.epoch, **other}
        answer = self.client.ask(
            "AddPartitionsToTxn",
            version,
            v3_and_below_transactional_id=values["id"],
            v3_and_below_producer_id=values["producer_id"],
            v3_and_below_producer_epoch=values["epoch"],
            v3_and_below_topics=[{"name": topic, "partitions": list(indexes)}],
            transactions=[
                {
                    "transactional_id": values["id"],
                    "producer_id": values["producer_id"],
                    "producer_epoch": values["epoch"],
                    "verify_only": values.get("verify_only", False),
                    "topics": [{"name": topic, "partitions": list(indexes)}],
                }
            ],
        )
        (results,) = (
            answer.results_by_topic_v3_and_below
            if version < 4
            else (result for each in answer.results_by_transaction for result in each.topic_results)
        )
        return [Error(each.partition_error_code) for each in results.results_by_partition]

    def end(self, version: int, *, commit: bool, **other: Any) -> Error:
        values = {"id": self.id, "producer_id": self.producer_id, "epoch": self.epoch, **other}
        answer = self.client.ask(
            "EndTxn",
            version,
            transactional_id=values["id"],
            producer_id=values["producer_id"],
            producer_epoch=values["epoch"],
            committed=commit,
        )
        if answer.error_code == Error.NONE and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return Error(answer.error_code)

    def state(self, *expected: str) -> Any:
        """What DescribeTransactions says, once it says one of these states."""
        deadline = time.monotonic() + WAIT_S
        while expected and self._describe(not_kafka="ours is waited for").transaction_state not in expected:
            assert time.monotonic() < deadline, f"not {expected}"
        return self._describe(
            until=lambda answer: not expected or answer.transaction_states[0].transaction_state in expected
        )

    def _describe(self, **options: Any) -> Any:
        answer = self.client.ask("DescribeTransactions", 0, transactional_ids=[self.id], **{"differs": OWN, **options})
        return answer.transaction_states[0]


@pytest.mark.parametrize("version", range(6))
def test_init_takes_the_id_over(transactions: Transactions, version: int) -> None:
    for epoch in range(3):
        assert transactions.init(version) is Error.NONE
        assert transactions.epoch == epoch
    assert transactions.state().transaction_state == "Empty"


@pytest.mark.parametrize("version", range(3, 6))
def test_init_of_a_producer_that_goes_on(transactions: Transactions, version: int) -> None:
    fenced = Error.PRODUCER_FENCED if version >= 4 else Error.INVALID_PRODUCER_EPOCH
    assert transactions.init(version) is Error.NONE
    producer_id = transactions.producer_id
    assert transactions.init(version, producer_id=producer_id, producer_epoch=0) is Error.NONE
    assert transactions.epoch == 1
    assert transactions.init(version, producer_id=producer_id, producer_epoch=0) is Error.NONE  # its answer got lost
    assert transactions.epoch == 1
    assert transactions.init(version, producer_id=producer_id, producer_epoch=5) is fenced
    assert transactions.init(version, producer_id=producer_id + 100_000, producer_epoch=1) is fenced
    assert transactions.init(version) is Error.NONE
    assert transactions.epoch == 2
    for epoch in (0, 1):
        assert transactions.init(version, producer_id=producer_id, producer_epoch=epoch) is fenced


@pytest.mark.parametrize("version", [5])
def test_init_of_an_unknown_id_that_names_a_producer(transactions: Transactions, version: int) -> None:
    assert transactions.init(version, producer_id=123_456_789, producer_epoch=7) is Error.NONE
    assert transactions.epoch == 0


@pytest.mark.parametrize("version", [5])
def test_init_refuses(transactions: Transactions, version: int) -> None:
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        assert transactions.init(version, timeout_ms=timeout_ms) is Error.INVALID_TRANSACTION_TIMEOUT
    for named in ({"producer_id": 5}, {"producer_epoch": 5}):
        assert transactions.init(version, **named) is Error.INVALID_REQUEST
    transactions.id = ""
    assert transactions.init(version) is Error.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
def test_init_aborts_what_is_open(client: Any, transactions: Transactions, version: int) -> None:
    topic = client.topic()
    transactions.init(version)
    assert transactions.add(3, topic, 0) == [Error.NONE]
    assert transactions.init(version) is Error.CONCURRENT_TRANSACTIONS
    assert transactions.state("CompleteAbort").producer_epoch == 1
    assert transactions.add(3, topic, 0) == [Error.PRODUCER_FENCED]
    assert transactions.init(version) is Error.NONE
    assert transactions.epoch == 2


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_of_a_client(client: Any, transactions: Transactions, version: int) -> None:
    topic = client.topic(partitions=3)
    fenced = Error.PRODUCER_FENCED if version >= 2 else Error.INVALID_PRODUCER_EPOCH
    assert transactions.add(version, topic, 0, producer_id=7, epoch=0) == [Error.INVALID_PRODUCER_ID_MAPPING]
    transactions.init()
    assert transactions.add(version, topic, 0, epoch=1) == [fenced]
    assert transactions.add(version, topic, 0, id="") == [Error.INVALID_REQUEST]
    assert transactions.add(version, topic, 0, producer_id=987_654_321) == [Error.INVALID_PRODUCER_ID_MAPPING]
    assert transactions.add(version, topic, 0, 1) == [Error.NONE] * 2
    assert transactions.add(version, topic, 1) == [Error.NONE]
    assert transactions.add(version, topic, 1, 2) == [Error.NONE] * 2
    found = transactions.state()
    assert found.transaction_state == "Ongoing"
    assert [(each.topic, sorted(each.partitions)) for each in found.topics] == [(topic, [0, 1, 2])]
    errors = transactions.add(version, topic, 0, 3)
    assert errors == [Error.OPERATION_NOT_ATTEMPTED, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert transactions.add(version, topic + "-none", 0) == [Error.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", [4, 5])
def test_add_and_verify_partitions_of_a_broker(client: Any, transactions: Transactions, version: int) -> None:
    topic = client.topic(partitions=3)
    assert transactions.add(version, topic, 0, producer_id=7, epoch=0) == [Error.INVALID_PRODUCER_ID_MAPPING]
    assert transactions.add(version, topic, 0, id="", verify_only=True) == [Error.INVALID_REQUEST]
    transactions.init()
    assert transactions.add(version, topic, 0, verify_only=True) == [Error.TRANSACTION_ABORTABLE]
    assert transactions.state().transaction_state == "Empty"
    assert transactions.add(version, topic, 0, 1) == [Error.NONE] * 2
    assert transactions.state().transaction_state == "Ongoing"
    errors = transactions.add(version, topic, 0, 2, verify_only=True)
    assert errors == [Error.NONE, Error.TRANSACTION_ABORTABLE]
    for verify_only in (False, True):
        assert transactions.add(version, topic, 0, epoch=1, verify_only=verify_only) == [Error.PRODUCER_FENCED]
        errors = transactions.add(version, topic, 0, 9, verify_only=verify_only)
        assert errors == [Error.OPERATION_NOT_ATTEMPTED, Error.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", range(5))
def test_add_offsets(client: Any, transactions: Transactions, version: int) -> None:
    fenced = Error.PRODUCER_FENCED if version >= 2 else Error.INVALID_PRODUCER_EPOCH

    def add(**other: Any) -> Error:
        values = {
            "transactional_id": transactions.id,
            "producer_id": transactions.producer_id,
            "producer_epoch": transactions.epoch,
            "group_id": "some-group",
            **other,
        }
        return Error(client.ask("AddOffsetsToTxn", version, **values).error_code)

    client.ask(
        "FindCoordinator",
        6,
        coordinator_keys=["some-group"],
        until=lambda answer: answer.coordinators[0].error_code == Error.NONE,
    )
    assert add(producer_id=7, producer_epoch=0) is Error.INVALID_PRODUCER_ID_MAPPING
    transactions.init()
    assert add(transactional_id="") is Error.INVALID_REQUEST
    assert add(producer_epoch=3) is fenced
    assert add() is Error.NONE
    assert add() is Error.NONE
    (topic,) = transactions.state().topics
    assert topic.topic == "__consumer_offsets"
    assert transactions.end(3, commit=True) is Error.NONE
    transactions.state("CompleteCommit")


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
def test_end_in_the_first_protocol(client: Any, transactions: Transactions, version: int, commit: bool) -> None:
    topic = client.topic(partitions=2)
    fenced = Error.PRODUCER_FENCED if version >= 2 else Error.INVALID_PRODUCER_EPOCH
    state = "CompleteCommit" if commit else "CompleteAbort"
    assert transactions.end(version, commit=commit, producer_id=7, epoch=0) is Error.INVALID_PRODUCER_ID_MAPPING
    assert transactions.end(version, commit=commit, id="") is Error.INVALID_REQUEST
    transactions.init()
    assert transactions.end(version, commit=commit) is Error.INVALID_TXN_STATE
    for _ in range(2):
        transactions.add(3, topic, 0, 1)
        assert transactions.end(version, commit=commit, epoch=1) is fenced
        assert transactions.end(version, commit=commit, producer_id=98_765) is Error.INVALID_PRODUCER_ID_MAPPING
        assert transactions.end(version, commit=commit) is Error.NONE
        found = transactions.state(state)
        assert (found.producer_id, found.producer_epoch, found.topics) == (transactions.producer_id, 0, [])
        assert transactions.end(version, commit=commit) is Error.NONE
        assert transactions.end(version, commit=not commit) is Error.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [5])
@pytest.mark.parametrize("commit", [True, False])
def test_end_in_the_second_protocol(client: Any, transactions: Transactions, version: int, commit: bool) -> None:
    topic = client.topic(partitions=2)
    state = "CompleteCommit" if commit else "CompleteAbort"
    assert transactions.end(version, commit=commit, producer_id=7, epoch=0) is Error.INVALID_PRODUCER_ID_MAPPING
    transactions.init()
    assert transactions.end(version, commit=True) is Error.INVALID_TXN_STATE
    for epoch in range(2):
        transactions.add(5, topic, 0, 1)
        assert transactions.end(version, commit=commit, epoch=epoch + 1) is Error.PRODUCER_FENCED
        assert transactions.end(version, commit=commit, epoch=epoch - 1) is Error.PRODUCER_FENCED
        assert transactions.end(version, commit=commit) is Error.NONE
        assert transactions.epoch == epoch + 1
        assert transactions.state(state).producer_epoch == epoch + 1
        assert transactions.end(version, commit=commit, epoch=epoch) is Error.NONE  # its answer got lost
        assert transactions.epoch == epoch + 1
        assert transactions.end(version, commit=not commit, epoch=epoch) is Error.INVALID_TXN_STATE
        assert transactions.end(version, commit=True) is Error.INVALID_TXN_STATE
        assert transactions.end(version, commit=True, epoch=epoch + 2) is Error.PRODUCER_FENCED


@pytest.mark.parametrize("version", [5])
def test_an_abort_of_nothing_gives_the_next_epoch(client: Any, transactions: Transactions, version: int) -> None:
    transactions.init()
    assert transactions.end(version, commit=False, epoch=-1) is Error.PRODUCER_FENCED
    for epoch in range(1, 4):
        assert transactions.end(version, commit=False) is Error.NONE
        assert transactions.epoch == epoch
        transactions.state("CompleteAbort")
    transactions.add(5, client.topic(), 0)
    assert transactions.end(version, commit=True) is Error.NONE
    transactions.state("CompleteCommit")
    assert transactions.end(version, commit=False) is Error.NONE
    transactions.state("CompleteAbort")
    assert transactions.epoch == 5


@pytest.mark.parametrize("version", [5])
def test_protocols_in_turn(client: Any, transactions: Transactions, version: int) -> None:
    """A producer may be replaced by one that speaks another protocol."""
    topic = client.topic()
    transactions.init()
    transactions.add(3, topic, 0)
    assert transactions.end(3, commit=True) is Error.NONE
    transactions.state("CompleteCommit")
    transactions.add(version, topic, 0)
    assert transactions.end(version, commit=True) is Error.NONE
    assert transactions.epoch == 1
    transactions.state("CompleteCommit")
    assert transactions.end(3, commit=True, epoch=0) is Error.PRODUCER_FENCED
    transactions.add(3, topic, 0)
    assert transactions.end(4, commit=False) is Error.NONE
    assert transactions.state("CompleteAbort").producer_epoch == 1


def test_describe(client: Any, transactions: Transactions) -> None:
    for transactional_id, error in (
        (transactions.id + "-none", Error.TRANSACTIONAL_ID_NOT_FOUND),
        ("", Error.INVALID_REQUEST),
    ):
        client.ask(
            "DescribeTransactions",
            0,
            transactional_ids=[transactional_id],
            differs=NOBODY,
            until=lambda answer, error=error: answer.transaction_states[0].error_code == error,
        )
    assert client.ask("DescribeTransactions", 0, transactional_ids=[]).transaction_states == []
    transactions.init(timeout_ms=54_321)
    found = transactions.state()
    assert (found.transaction_state, found.transaction_timeout_ms, found.producer_epoch) == ("Empty", 54_321, 0)
    assert found.transaction_start_time_ms == -1
    transactions.add(3, client.topic(), 0)
    assert time.time() * 1000 - transactions.state().transaction_start_time_ms < 60_000


@pytest.mark.parametrize("version", range(3))
def test_list(client: Any, transactions: Transactions, version: int) -> None:
    topic = client.topic()
    transactions.init()
    ongoing = Transactions(client, "-ongoing")
    ongoing.init()
    ongoing.add(3, topic, 0)
    producer_ids = [transactions.producer_id, ongoing.producer_id]

    def listed(**filters: Any) -> list[str]:
        values = {"state_filters": [], "producer_id_filters": producer_ids, **filters}
        answer = client.ask(
            "ListTransactions",
            version,
            differs={"transaction_states[[]#*": "compared as a set below", "transaction_states[[]*": "order"},
            **values,
        )
        assert answer.error_code == Error.NONE
        return sorted(each.transactional_id for each in answer.transaction_states)

    both = sorted([transactions.id, ongoing.id])
    assert listed() == both
    assert listed(producer_id_filters=[ongoing.producer_id]) == [ongoing.id]
    assert listed(producer_id_filters=[987_654_321]) == []
    assert listed(state_filters=["Ongoing"]) == [ongoing.id]
    assert listed(state_filters=["Empty", "Ongoing"]) == both
    assert listed(state_filters=["CompleteCommit"]) == []
    if version >= 1:
        assert listed(duration_filter=0, state_filters=["Empty"]) == [transactions.id]
        assert listed(duration_filter=10**9) == [transactions.id]  # it began at -1
        assert listed(duration_filter=10**15) == []
    if version >= 2:
        assert listed(transactional_id_pattern=".*-ongoing") == [ongoing.id]
        assert listed(transactional_id_pattern="ongoing") == []
        assert listed(transactional_id_pattern="") == both


@pytest.mark.parametrize("version", range(3))
def test_list_of_unknown_states(client: Any, transactions: Transactions, version: int) -> None:
    for names in (["Nonsense"], ["ongoing", "Ongoing"], ["Dead", "PrepareEpochFence", "PrepareCommit", "x", "x"]):
        answer = client.ask("ListTransactions", version, state_filters=names, producer_id_filters=[987_654_321])
        assert answer.error_code == Error.NONE


@pytest.mark.parametrize("version", [2])
def test_list_by_no_pattern(client: Any, transactions: Transactions, version: int) -> None:
    for pattern in ("(", "a{1001}", "(?<name>x)(", "*"):
        answer = client.ask("ListTransactions", version, transactional_id_pattern=pattern)
        assert answer.error_code == Error.INVALID_REGULAR_EXPRESSION
