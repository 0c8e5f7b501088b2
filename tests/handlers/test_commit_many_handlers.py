"""Committing many producers at once, through real sockets: 2,000 of them, zombies, and a broker that is killed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.base.errors import Error
from penstock.base.steps import ProducerEpoch
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.raw_client import RawClient
from penstock.transactions.names import MARK, id_of_member
from penstock.wire.api import OWN_APIS
from penstock.wire.batch import CONTROL, each_batch
from penstock.wire.codec import decode
from penstock.wire.headers import decode_response_header
from penstock.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.k20000_prepare_transactions import (
    PrepareTransactionsRequest,
    PrepareTransactionsRequestTransaction,
)
from penstock.wire.messages.k20001_commit_transactions import (
    CommitTransactionsRequest,
    CommitTransactionsRequestTransaction,
    CommitTransactionsResponse,
)
from penstock.wire.messages.k20002_describe_commits import DescribeCommitsRequest
from penstock.wire.messages.k20003_delete_commits import DeleteCommitsRequest
from penstock.wire.records import Record, build_batch, read_records

WAIT_S = 20
PRODUCE_VERSION = 12
PARTITIONS = 4
BUSY = (
    Error.CONCURRENT_TRANSACTIONS,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}


class Task(NamedTuple):
    """A task's transaction."""

    transactional_id: str
    producer: ProducerEpoch


class Sink:
    """A name and its tasks, on one connection."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        self.broker = broker
        self.name = name
        self.topic = f"topic-{name}"
        self.client = RawClient(broker.host, broker.port)
        topic = CreateTopicsRequestTopic(name=self.topic, num_partitions=PARTITIONS, replication_factor=1)
        self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        found = self.client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[MARK + name]), 6)
        assert found.coordinators[0].error_code == Error.NONE

    def reconnect(self) -> None:
        self.client.close()
        self.client = RawClient(self.broker.host, self.broker.port)

    def call(self, request: Any, version: int | None = None) -> Any:
        """Ask until the broker is ready for it."""
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self.client.call(request, version)
            if answer.error_code not in BUSY:
                return answer
            assert time.monotonic() < deadline, answer

    def call_all(self, requests: Sequence[Any], version: int, response: Any) -> list[Any]:
        """Many requests at once, and their answers."""
        key = int.from_bytes(self.client.frame_of(requests[0], version)[4:6], "big")
        self.client.send(b"".join(self.client.frame_of(each, version) for each in requests))
        answers = []
        for _ in requests:
            frame = self.client.receive_frame(WAIT_S)
            _, position = decode_response_header(key, version, frame)
            answers.append(decode(response, version, frame, position)[0])
        return answers

    def init(self, *members: str, timeout_ms: int = 60_000) -> list[Task]:
        ids = [id_of_member(self.name, member) for member in members]
        requests = [InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=timeout_ms) for each in ids]
        self.call(requests[0], 5)  # the shard is ready, and the id has no open transaction
        answers = self.call_all(requests, 5, InitProducerIdResponse)
        return [
            Task(each, ProducerEpoch(answer.producer_id, answer.producer_epoch))
            for each, answer in zip(ids, answers, strict=True)
        ]

    def write(self, tasks: Sequence[Task], tag: str) -> None:
        requests = []
        for number, (transactional_id, producer) in enumerate(tasks):
            batch = build_batch(
                [Record(0, int(time.time() * 1000), None, f"{tag}-{number}".encode())],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            partition = ProduceRequestPartition(index=number % PARTITIONS, records=batch)
            topic = ProduceRequestTopic(name=self.topic, partition_data=[partition])
            requests.append(
                ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[topic])
            )
        for answer in self.call_all(requests, PRODUCE_VERSION, ProduceResponse):
            (part,) = answer.responses[0].partition_responses
            assert part.error_code == Error.NONE, part

    def tasks(self, count: int, tag: str, attempt: int = 0) -> list[Task]:
        tasks = self.init(*(f"{number}/{attempt % 4}" for number in range(count)))
        self.write(tasks, tag)
        return tasks

    def prepare(self, number: int, tasks: Sequence[Task], run: int = 0) -> Any:
        named = [
            PrepareTransactionsRequestTransaction(
                transactional_id=each, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
            )
            for each, producer in tasks
        ]
        return self.call(PrepareTransactionsRequest(name=self.name, number=number, run=run, transactions=named))

    def commit_request(self, number: int, tasks: Sequence[Task]) -> CommitTransactionsRequest:
        named = [
            CommitTransactionsRequestTransaction(
                transactional_id=each, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
            )
            for each, producer in tasks
        ]
        return CommitTransactionsRequest(name=self.name, number=number, transactions=named)

    def commit(self, number: int, tasks: Sequence[Task]) -> CommitTransactionsResponse:
        answer: CommitTransactionsResponse = self.call(self.commit_request(number, tasks))
        return answer

    def batch(self, number: int, count: int, tag: str, run: int = 0, attempt: int = 0) -> list[Task]:
        tasks = self.tasks(count, tag, attempt)
        assert self.prepare(number, tasks, run).error_code == Error.NONE
        return tasks

    def committed(self) -> list[str]:
        """What a reader of committed records sees, in all partitions."""
        return sorted(value for index in range(PARTITIONS) for value in self._committed(index))

    def _committed(self, index: int) -> list[str]:
        values: list[str] = []
        offset = 0
        while True:
            partition = FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 24)
            topic = FetchRequestTopic(topic=self.topic, partitions=[partition])
            request = FetchRequest(isolation_level=1, max_bytes=1 << 24, topics=[topic])
            (part,) = self.client.call(request, 12).responses[0].partitions
            assert part.error_code == Error.NONE
            if not part.records:
                return values
            aborted = {(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()}
            for header, batch in each_batch(memoryview(bytes(part.records))):
                offset = header.next_offset
                is_aborted = (header.producer_id, header.base_offset) in aborted  # each has written one batch
                if not header.attributes & CONTROL and not is_aborted:
                    values += [bytes(record.value or b"").decode() for record in read_records(batch)]

    def wait_until_committed(self, *tags: tuple[str, int]) -> None:
        """Until all markers are written, and readers see just these."""
        expected = sorted(f"{tag}-{number}" for tag, count in tags for number in range(count))
        deadline = time.monotonic() + WAIT_S
        while (found := self.committed()) != expected:
            assert time.monotonic() < deadline, f"{len(found)} of {len(expected)}: {found[:10]}"
        assert found == expected

    def describe(self) -> Any:
        (described,) = self.client.call(DescribeCommitsRequest(names=[self.name])).names
        return described


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("many") / "data", settings=SETTINGS) as process:
        yield process


@pytest.fixture
def sink(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Sink]:
    made = Sink(broker, request.node.name.replace("[", "-").replace("]", ""))
    yield made
    made.client.close()


def test_own_apis_are_shown_to_those_who_ask(sink: Sink) -> None:
    def keys(software: str) -> set[int]:
        request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        return {row.api_key for row in sink.client.call(request, 4).api_keys}

    assert keys("penstock") & OWN_APIS.keys() == keys("penstock-spark") & OWN_APIS.keys() == OWN_APIS.keys()
    assert not keys("apache-kafka-java") & OWN_APIS.keys()
    assert not keys("penstocks") & OWN_APIS.keys()


def test_all_ids_of_a_name_have_one_coordinator(sink: Sink) -> None:
    keys = [id_of_member(sink.name, str(number)) for number in range(20)]
    answer = sink.client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=keys), 6)
    assert {each.error_code for each in answer.coordinators} == {Error.NONE}
    sink.batch(0, 20, "a")
    assert len(sink.describe().transactions) == 20


def test_two_thousand_producers(sink: Sink) -> None:
    tasks = sink.batch(0, 2000, "a")
    assert sink.committed() == []
    answer = sink.commit(0, tasks)
    assert (answer.error_code, answer.already_committed, answer.last_number) == (Error.NONE, False, 0)
    sink.wait_until_committed(("a", 2000))
    assert sink.commit(0, tasks).already_committed


def test_batches_and_everything_that_goes_wrong_with_them(sink: Sink) -> None:
    first = sink.batch(0, 5, "first")
    assert sink.commit(0, first).error_code == Error.NONE
    second = sink.batch(1, 5, "second", attempt=1)
    late = sink.commit(0, first)  # a duplicate that comes when the next batch has begun
    assert (late.error_code, late.already_committed) == (Error.NONE, True)
    assert sink.commit(1, second).error_code == Error.NONE
    stale = sink.commit(0, [])
    assert (stale.error_code, stale.last_number) == (Error.INVALID_UPDATE_VERSION, 1)
    assert "checkpoint" in (stale.error_message or "")
    third = sink.batch(2, 5, "third")
    (zombie,) = sink.init("3/0")  # an attempt that everybody had given up takes the id over
    refused = sink.commit(2, third)
    assert refused.error_code == Error.PRODUCER_FENCED
    assert zombie.transactional_id in (refused.error_message or "")
    fewer = sink.batch(2, 2, "fewer", run=1, attempt=1)
    assert sink.commit(2, fewer).error_code == Error.NONE
    sink.wait_until_committed(("first", 5), ("second", 5), ("fewer", 2))
    assert sink.describe().transactions == []
    again = sink.batch(2, 3, "again", run=2)  # a batch that was committed is written again
    assert sink.commit(2, again).already_committed
    sink.wait_until_committed(("first", 5), ("second", 5), ("fewer", 2))


def test_a_batch_longer_than_the_transaction_timeout(sink: Sink) -> None:
    prepared = sink.init("0/0", timeout_ms=500)
    sink.write(prepared, "kept")
    assert sink.prepare(0, prepared).error_code == Error.NONE
    forgotten = sink.init("1/0", timeout_ms=500)
    sink.write(forgotten, "forgotten")
    deadline = time.monotonic() + WAIT_S
    while len(sink.describe().transactions) == 2:
        assert time.monotonic() < deadline
    (kept,) = sink.describe().transactions
    assert kept.transactional_id == prepared[0].transactional_id
    assert sink.commit(0, prepared).error_code == Error.NONE
    sink.wait_until_committed(("kept", 1))


def test_the_last_number_is_deleted_by_request(sink: Sink) -> None:
    assert sink.commit(5, []).error_code == Error.NONE
    everything = sink.client.call(DescribeCommitsRequest(names=None))
    assert sink.name in {each.name for each in everything.names}
    for error in (Error.NONE, Error.RESOURCE_NOT_FOUND):
        (deleted,) = sink.client.call(DeleteCommitsRequest(names=[sink.name])).names
        assert deleted.error_code == error
    assert sink.describe().error_code == Error.RESOURCE_NOT_FOUND
    assert sink.commit(0, []).error_code == Error.NONE


def test_requests_that_are_none(sink: Sink) -> None:
    for name in ("", "a/b", "x" * 300):
        request = CommitTransactionsRequest(name=name, number=0, transactions=[])
        assert sink.call(request).error_code == Error.INVALID_REQUEST
        assert sink.client.call(DescribeCommitsRequest(names=[name])).names[0].error_code == Error.INVALID_REQUEST
    assert sink.commit(-1, []).error_code == Error.INVALID_REQUEST
    assert sink.commit(0, [Task("stranger", ProducerEpoch(1, 1))]).error_code == Error.INVALID_REQUEST


def test_a_broker_that_is_killed_leaves_all_committed_or_none(tmp_path: Path) -> None:
    """With a commit that was answered, one that was not, and a batch that waits for its commit."""
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        answered, sent, waiting = (Sink(broker, name) for name in ("answered", "sent", "waiting"))
        tasks = {sink: sink.batch(0, 50, "a") for sink in (answered, sent, waiting)}
        assert answered.commit(0, tasks[answered]).error_code == Error.NONE
        sent.client.send(sent.client.frame_of(sent.commit_request(0, tasks[sent])))
        broker.kill()
        broker.start()
        for sink in (answered, sent, waiting):
            sink.reconnect()
            answer = sink.commit(0, tasks[sink])
            assert answer.error_code == Error.NONE
            assert sink is sent or answer.already_committed == (sink is answered)
            sink.wait_until_committed(("a", 50))
            sink.client.close()
