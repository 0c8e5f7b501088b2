"""`penstock transaction` against a running broker: ours, and Apache Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from penstock.base.errors import Error
from penstock.testing.raw_client import RawClient
from penstock.wire.messages import k00_produce as k00
from penstock.wire.messages import k10_find_coordinator as k10
from penstock.wire.messages import k22_init_producer_id as k22
from penstock.wire.messages import k24_add_partitions_to_txn as k24
from penstock.wire.messages import k26_end_txn as k26
from penstock.wire.messages import k20000_prepare_transactions as k20000
from penstock.wire.messages import k20001_commit_transactions as k20001
from penstock.wire.records import Record, build_batch

pytestmark = pytest.mark.clients

Command = Callable[..., Any]

HOUR_MS = 3_600_000
CATCHES_UP_WITHIN_S = 10
SETTLES_SOON = (
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.NOT_COORDINATOR,
    Error.CONCURRENT_TRANSACTIONS,
)
NEW_TOPIC = (Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.fixture(params=["penstock", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """Every test here runs on both."""
    return str(request.getfixturevalue("kafka_bootstrap")) if request.param == "kafka" else bootstrap


class RawProducer:
    """A transactional producer that does each step by itself, and only when told."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._client = RawClient(host, int(port))
        self._sequences: dict[tuple[str, int], int] = {}
        self.transactional_id = transactional_id
        self.producer_id = self.producer_epoch = -1

    def begin(self) -> None:
        """Get an id and an epoch; looking for the coordinator is what makes the topic of transactions."""
        self._client.call(k10.FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id]), 4)
        request = k22.InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = self._settled(request, 4)
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    def _settled(self, request: Any, version: int) -> Any:
        deadline = time.monotonic() + CATCHES_UP_WITHIN_S
        while (answer := self._client.call(request, version)).error_code in SETTLES_SOON:
            assert time.monotonic() < deadline, answer
        assert answer.error_code == Error.NONE, answer
        return answer

    def add(self, topic: str, *partitions: int) -> None:
        """Tell the coordinator that the transaction will write there."""
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[k24.AddPartitionsToTxnRequestTopic(name=topic, partitions=list(partitions))],
        )
        deadline = time.monotonic() + CATCHES_UP_WITHIN_S
        while (codes := self._added(request)) != {Error.NONE}:
            assert codes <= {*NEW_TOPIC, Error.OPERATION_NOT_ATTEMPTED, Error.CONCURRENT_TRANSACTIONS}
            assert time.monotonic() < deadline

    def _added(self, request: k24.AddPartitionsToTxnRequest) -> set[int]:
        results = self._client.call(request, 3).results_by_topic_v3_and_below[0].results_by_partition
        return {each.partition_error_code for each in results}

    def write(self, topic: str, partition: int, age_ms: int = 0) -> tuple[int, int]:
        """Write one message; its error code and offset."""
        sequence = self._sequences.get((topic, partition), 0)
        batch = build_batch(
            [Record(0, round(time.time() * 1000) - age_ms, b"k", b"v")],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = k00.ProduceRequestTopic(
            name=topic, partition_data=[k00.ProduceRequestPartition(index=partition, records=batch)]
        )
        request = k00.ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data]
        )
        deadline = time.monotonic() + CATCHES_UP_WITHIN_S
        while (part := self._produced(request)).error_code in NEW_TOPIC:
            assert time.monotonic() < deadline, part
        if part.error_code == Error.NONE:
            self._sequences[topic, partition] = sequence + 1
        return part.error_code, part.base_offset

    def _produced(self, request: k00.ProduceRequest) -> Any:
        return self._client.call(request, 9).responses[0].partition_responses[0]

    def end(self, *, committed: bool) -> None:
        request = k26.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        self._settled(request, 3)

    def prepare_and_commit(self, name: str, number: int) -> None:
        """Commit as the only producer of a name."""
        ids = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }
        prepared = [k20000.PrepareTransactionsRequestTransaction(**ids)]  # type: ignore[arg-type]
        self._settled(k20000.PrepareTransactionsRequest(name=name, number=number, run=1, transactions=prepared), 0)
        committed = [k20001.CommitTransactionsRequestTransaction(**ids)]  # type: ignore[arg-type]
        self._settled(k20001.CommitTransactionsRequest(name=name, number=number, transactions=committed), 0)

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def producer(bootstrap: str) -> Iterator[RawProducer]:
    producer = RawProducer(bootstrap, f"cli-{uuid4().hex[:12]}")
    try:
        producer.begin()
        yield producer
    finally:
        producer.close()


@pytest.fixture
def opened(producer: RawProducer, topic: str) -> RawProducer:
    """A producer with an open transaction in both partitions of the topic."""
    producer.add(topic, 0, 1)
    assert producer.write(topic, 0) == (Error.NONE, 0)
    assert producer.write(topic, 1) == (Error.NONE, 0)
    return producer


def listed(on_broker: Command, *options: str) -> dict[str, dict[str, Any]]:
    outcome = on_broker("transaction", "list", "--json", *options)
    assert outcome.code == 0, outcome.err
    return {row["transactional_id"]: row for row in json.loads(outcome.out)}


def described(on_broker: Command, transactional_id: str) -> dict[str, Any]:
    outcome = on_broker("transaction", "describe", transactional_id, "--json")
    assert outcome.code == 0, outcome.err
    [document] = json.loads(outcome.out)
    assert isinstance(document, dict)
    return document


def open_since(on_broker: Command, topic: str) -> dict[int, int | None]:
    rows = json.loads(on_broker("transaction", "describe", "--topic", topic, "--json").out)
    return {row["partition"]: row["transaction_start_offset"] for row in rows}


# list and describe


def test_list(on_broker: Command, opened: RawProducer) -> None:
    row = listed(on_broker)[opened.transactional_id]
    assert (row["state"], row["producer_id"]) == ("Ongoing", opened.producer_id)
    text = on_broker("transaction", "list", "--state", "ongoing").lines
    assert f"{opened.transactional_id}\tOngoing\t{opened.producer_id}\t{row['coordinator']['id']}" in text


def test_filters_of_the_list(on_broker: Command, opened: RawProducer) -> None:
    name = opened.transactional_id
    assert name in listed(on_broker, "--state", "ongoing", "--state", "Empty")
    assert name not in listed(on_broker, "--state", "completecommit")
    assert [*listed(on_broker, "--producer-id", str(opened.producer_id))] == [name]
    assert [*listed(on_broker, "--matching", f"{name[:-1]}.")] == [name]
    assert name in listed(on_broker, "--longer-than", "0ms")
    assert name not in listed(on_broker, "--longer-than", "1h")
    nothing = on_broker("transaction", "list", "--longer-than", "9d")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no such transactions\n")
    wrong = on_broker("transaction", "list", "--longer-than", "soon")
    assert (wrong.code, "--longer-than wants a number and a unit" in wrong.err) == (2, True)


def test_describe(on_broker: Command, opened: RawProducer, topic: str) -> None:
    document = described(on_broker, opened.transactional_id)
    assert (document["state"], document["timeout_ms"], document["partitions"]) == ("Ongoing", 60_000, {topic: [0, 1]})
    assert (document["producer_id"], document["producer_epoch"]) == (opened.producer_id, opened.producer_epoch)
    assert 0 <= document["open_for_ms"] < 600_000
    text = on_broker("transaction", "describe", opened.transactional_id).lines
    assert text[0].startswith(f"{opened.transactional_id}: Ongoing, open for ")
    assert f"producer {opened.producer_id} epoch 0, timeout 60s, coordinator " in text[0]
    assert text[1:3] == ["TOPIC\tPARTITIONS", f"{topic}\t0,1"]


def test_describe_what_was_committed(on_broker: Command, opened: RawProducer) -> None:
    opened.end(committed=True)
    deadline = time.monotonic() + CATCHES_UP_WITHIN_S
    while (document := described(on_broker, opened.transactional_id))["state"] == "PrepareCommit":
        assert time.monotonic() < deadline
    assert (document["state"], document["partitions"]) == ("CompleteCommit", {})


def test_describe_the_producers_of_a_topic(on_broker: Command, opened: RawProducer, topic: str) -> None:
    rows = json.loads(on_broker("transaction", "describe", "--topic", topic, "--partition", "1", "--json").out)
    [row] = rows
    assert (row["topic"], row["partition"], row["transactional_id"]) == (topic, 1, opened.transactional_id)
    assert (row["producer_id"], row["last_sequence"]) == (opened.producer_id, 0)
    assert row["transaction_start_offset"] == 0
    assert open_since(on_broker, topic) == {0: 0, 1: 0}
    text = on_broker("transaction", "describe", "--topic", topic).lines
    assert text[0].split("\t")[:5] == ["TOPIC", "PARTITION", "PRODUCER", "EPOCH", "TRANSACTIONAL ID"]
    assert text[1].split("\t")[:5] == [topic, "0", str(opened.producer_id), "0", opened.transactional_id]


def test_a_topic_without_producers(on_broker: Command, producer: RawProducer, topic: str) -> None:
    outcome = on_broker("transaction", "describe", "--topic", topic)
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.startswith("no producers")


def test_an_unknown_id_gets_close_names(on_broker: Command, opened: RawProducer) -> None:
    for verb in ("describe", "abort"):
        outcome = on_broker("transaction", verb, opened.transactional_id + "x")
        assert (outcome.code, outcome.out) == (4, "")
        close = f"(did you mean '{opened.transactional_id}'"
        assert f"there is no transactional id '{opened.transactional_id}x' {close}" in outcome.err


# abort


def test_abort_by_id_fences_the_producer(on_broker: Command, opened: RawProducer, topic: str) -> None:
    outcome = on_broker("transaction", "abort", opened.transactional_id)
    assert outcome.code == 0, outcome.err
    fenced = f"producer {opened.producer_id} epoch 0 is fenced"
    assert outcome.out.startswith(f"aborted the transaction of {opened.transactional_id}; {fenced}, the next epoch is ")
    assert open_since(on_broker, topic) == {0: None, 1: None}
    assert opened.write(topic, 0)[0] in (Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED)
    assert on_broker("consume", topic, "--isolation", "committed").lines == []
    again = on_broker("transaction", "abort", opened.transactional_id)
    assert (again.code, "has no open transaction: its state is " in again.err) == (1, True)


def test_a_transaction_that_its_coordinator_knows_does_not_hang(
    on_broker: Command, opened: RawProducer, topic: str
) -> None:
    found = on_broker("transaction", "find-hanging", "--topic", topic, "--older-than", "0ms")
    assert (found.code, found.out, found.err) == (0, "", "no transaction hangs\n")
    place = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    refused = on_broker("transaction", "abort", *place)
    assert (refused.code, "the transaction does not hang" in refused.err) == (1, True)
    assert f"'penstock transaction abort {opened.transactional_id}'" in refused.err
    assert on_broker("transaction", "abort", *place, "--force").code == 0
    assert open_since(on_broker, topic) == {0: None, 1: 0}


def test_a_hanging_transaction_is_found_and_aborted(on_broker: Command, producer: RawProducer, topic: str) -> None:
    """Written without telling the coordinator, which therefore will never end it."""
    assert producer.write(topic, 1, age_ms=HOUR_MS) == (Error.NONE, 0)
    on_broker("produce", topic, "--partition", "1", stdin=b"after\n")
    assert on_broker("consume", topic, "--isolation", "committed").lines == []
    [row] = json.loads(on_broker("transaction", "find-hanging", "--topic", topic, "--json").out)
    assert (row["partition"], row["producer_id"]) == (1, producer.producer_id)
    assert (row["transactional_id"], row["transaction_start_offset"]) == (producer.transactional_id, 0)
    everywhere = on_broker("transaction", "find-hanging")
    assert f"{topic}\t1\t{producer.producer_id}\t" in everywhere.out
    assert "penstock transaction abort --topic" in everywhere.err
    missed = on_broker("transaction", "abort", "--topic", topic, "--partition", "1", "--start-offset", "1")
    assert (missed.code, "no open transaction begins at offset 1" in missed.err) == (4, True)
    done = on_broker("transaction", "abort", "--topic", topic, "--partition", "1", "--start-offset", "0")
    who = f"producer {producer.producer_id} epoch 0"
    where = f"offset 0 in partition 1 of topic '{topic}'"
    assert done.out == f"aborted the transaction of {who} that began at {where}\n"
    assert on_broker("transaction", "find-hanging", "--topic", topic).err == "no transaction hangs\n"
    assert on_broker("consume", topic, "--isolation", "committed").lines == ["after"]


# the lag of readers of committed messages


def test_groups_are_shown_with_the_stable_end(on_broker: Command, opened: RawProducer, topic: str) -> None:
    group = f"cli-{uuid4().hex[:12]}"
    on_broker("group", "reset", group, "--topic", f"{topic}:0", "--to-earliest")
    outcome = on_broker("group", "describe", group)
    assert outcome.lines[2] == f"{topic}\t0\t0\t1\t1\t-"
    assert f"{topic} 0: a transaction is open; read_committed readers get up to offset 0, 0 of the lag" in outcome.err
    on_broker("group", "delete", group)


# names


def test_names_that_commit_as_one(on_broker: Command, bootstrap: str, topic: str) -> None:
    if "does not serve" in (listing := on_broker("transaction", "name", "list")).err:
        assert listing.code == 1
        return
    name = f"cli-{uuid4().hex[:12]}"
    producer = RawProducer(bootstrap, f"penstock-many:{name}/0")
    try:
        producer.begin()
        producer.add(topic, 0)
        producer.write(topic, 0)
        [before] = json.loads(on_broker("transaction", "name", "describe", name, "--json").out)
        assert (before["last_number"], before["complete"]) == (None, True)
        [row] = before["transactions"]
        assert (row["transactional_id"], row["state"]) == (producer.transactional_id, "Ongoing")
        producer.prepare_and_commit(name, 7)
    finally:
        producer.close()
    deadline = time.monotonic() + CATCHES_UP_WITHIN_S
    while f"{name}\t7\tyes\t0" not in on_broker("transaction", "name", "list").lines:
        assert time.monotonic() < deadline
    assert on_broker("transaction", "name", "describe", name).lines[0] == f"{name}: last number 7, complete"
    unknown = on_broker("transaction", "name", "describe", name + "x")
    assert (unknown.code, f"there is no name '{name}x' (did you mean '{name}'" in unknown.err) == (4, True)
    assert on_broker("transaction", "name", "delete", name).out == f"deleted name {name}\n"
    again = on_broker("transaction", "name", "delete", name)
    assert (again.code, f"there is no name '{name}'" in again.err) == (4, True)
