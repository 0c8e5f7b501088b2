"""Transactions as the leaders of partitions see them: produce, fetch, ListOffsets, markers, producers, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.wire.batch import each_batch

VERIFIES = range(3, 12)
ADDS = (12, 13)
BUSY = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)
READ_COMMITTED = 1
MARKER_TIME = {"topics*.last_timestamp": "a marker has the broker's own time"}
OFFSETS_TOPIC = "__consumer_offsets"
REFUSALS = {
    "*.log_start_offset": "not told with errors",
    "*.log_append_time_ms": "Kafka tells the producer's time for a batch that it has already",
}


def _is_verified(answer: Any) -> bool:
    """Kafka says NOT_ENOUGH_REPLICAS while its leader has not reached the coordinator: to be asked again."""
    errors = {part.error_code for topic in answer.responses for part in topic.partition_responses}
    return Error.NOT_ENOUGH_REPLICAS not in errors


class Writer:
    """A transactional producer that counts its sequences."""

    def __init__(self, client: Any, suffix: str = "-tx") -> None:
        self.client = client
        self.id = client.prefix + suffix
        self.sequences: dict[tuple[str, int], int] = {}
        self.producer_id = self.epoch = -1
        self.topic_ids: dict[str, Any] = {}
        client.ask(
            "FindCoordinator",
            6,
            key_type=1,
            coordinator_keys=[self.id],
            until=lambda answer: answer.coordinators[0].error_code == Error.NONE,
        )
        self.init()

    def init(self) -> None:
        """Begin anew; what is open is aborted first."""
        answer = self.client.ask(
            "InitProducerId",
            5,
            transactional_id=self.id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
            until=lambda answer: answer.error_code not in (*BUSY, Error.CONCURRENT_TRANSACTIONS),
            is_patient=True,
        )
        assert answer.error_code == Error.NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def add(self, topic: str, *indexes: int) -> None:
        answer = self.client.ask(
            "AddPartitionsToTxn",
            3,
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": list(indexes)}],
            until=lambda answer: self._added(answer) != {Error.CONCURRENT_TRANSACTIONS},
            is_patient=True,
        )
        assert self._added(answer) == {Error.NONE}

    @staticmethod
    def _added(answer: Any) -> set[Error]:
        (topic,) = answer.results_by_topic_v3_and_below
        return {Error(each.partition_error_code) for each in topic.results_by_partition}

    def batch(self, topic: str, index: int, *values: bytes, **other: Any) -> bytes:
        """The next batch for a partition."""
        sequence = other.pop("sequence", self.sequences.get((topic, index), 0))
        options = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "transactional": True, **other}
        return bytes(self.client.batch(*(values or (b"v",)), base_sequence=sequence, **options))

    def send(self, version: int, topic: str, batches: Mapping[int, bytes], **other: Any) -> list[tuple[Error, int]]:
        """(error, base offset) of each partition."""
        if topic not in self.topic_ids:
            self.topic_ids[topic] = self.client.topic_id(topic)
        rows = [{"index": index, "records": records} for index, records in batches.items()]
        answer = self.client.ask(
            "Produce",
            version,
            acks=-1,
            timeout_ms=10_000,
            transactional_id=other.pop("id", self.id),
            topic_data=[{"name": topic, "topic_id": self.topic_ids[topic], "partition_data": rows}],
            differs=REFUSALS,
            until=_is_verified,
            **other,
        )
        return [(Error(part.error_code), part.base_offset) for part in answer.responses[0].partition_responses]

    def write(self, version: int, topic: str, index: int = 0, *values: bytes, **other: Any) -> Error:
        """One more batch; the sequence moves on when it was taken."""
        ((error, _),) = self.send(version, topic, {index: self.batch(topic, index, *values, **other)})
        if error is Error.NONE:
            self.sequences[topic, index] = self.sequences.get((topic, index), 0) + max(1, len(values))
        return error

    def end(self, version: int = 4, *, commit: bool) -> None:
        answer = self.client.ask(
            "EndTxn",
            version,
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        assert answer.error_code == Error.NONE
        if version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()


@pytest.fixture
def writer(client: Any) -> Writer:
    return Writer(client)


@pytest.fixture
def topic(client: Any) -> str:
    found: str = client.topic(partitions=2)
    return found


class Reader:
    """Fetches of one partition."""

    def __init__(self, client: Any, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.topic_id = client.topic_id(topic)

    def fetch(
        self, version: int = 12, offset: int = 0, *, isolation_level: int = READ_COMMITTED, **options: Any
    ) -> Any:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 100_000}
        topics = [{"topic": self.topic, "topic_id": self.topic_id, "partitions": [part]}]
        asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1}
        answer = self.client.ask(
            "Fetch",
            version,
            replica_id=-1,
            isolation_level=isolation_level,
            topics=options.pop("topics", topics),
            **{**asked, **options},
        )
        return answer.responses[0].partitions[0]

    def stable(self, last_stable_offset: int) -> Any:
        """The answer once the last stable offset has come so far: markers are written after EndTxn is answered."""
        return self.fetch(
            until=lambda answer: answer.responses[0].partitions[0].last_stable_offset == last_stable_offset,
            is_patient=True,
        )


@pytest.fixture
def reader(client: Any, topic: str) -> Reader:
    return Reader(client, topic)


def offsets(part: Any) -> list[int]:
    return [header.base_offset for header, _ in each_batch(memoryview(bytes(part.records or b"")))]


def aborted(part: Any) -> list[int]:
    return [each.first_offset for each in part.aborted_transactions]


# ── Produce ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", VERIFIES)
def test_produce_verifies_that_the_partition_was_added(
    topic: str, writer: Writer, reader: Reader, version: int
) -> None:
    refused = Error.TRANSACTION_ABORTABLE if version == 11 else Error.INVALID_TXN_STATE
    assert writer.write(version, topic) is refused
    writer.add(topic, 0)
    for _ in range(2):
        assert writer.write(version, topic) is Error.NONE
    batches = {0: writer.batch(topic, 0), 1: writer.batch(topic, 1)}
    assert writer.send(version, topic, batches) == [(Error.NONE, 2), (refused, -1)]
    writer.sequences[topic, 0] += 1
    writer.end(commit=True)
    reader.stable(4)
    assert writer.write(version, topic) is refused
    writer.add(topic, 0)
    assert writer.write(version, topic) is Error.NONE


@pytest.mark.parametrize("version", ADDS)
def test_produce_adds_the_partition(topic: str, writer: Writer, reader: Reader, version: int) -> None:
    for _ in range(2):
        assert writer.write(version, topic) is Error.NONE
    assert writer.write(version, topic, 1) is Error.NONE
    old = writer.batch(topic, 0)
    writer.end(5, commit=True)
    reader.stable(3)
    assert writer.epoch == 1
    assert writer.send(version, topic, {0: old}) == [(Error.INVALID_PRODUCER_EPOCH, -1)]
    assert writer.write(version, topic, sequence=2) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(version, topic) is Error.NONE


@pytest.mark.parametrize("version", [11, *ADDS])
def test_produce_of_the_wrong_producer(client: Any, topic: str, writer: Writer, version: int) -> None:
    writer.add(topic, 0)
    batch = writer.batch(topic, 0, producer_id=918_273_645)
    assert writer.send(version, topic, {0: batch}) == [(Error.INVALID_PRODUCER_ID_MAPPING, -1)]
    batch = writer.batch(topic, 0, producer_epoch=5)
    assert writer.send(version, topic, {0: batch}) == [(Error.INVALID_PRODUCER_EPOCH, -1)]
    assert writer.send(version, topic, {0: writer.batch(topic, 0)}, id=writer.id + "-other") == [
        (Error.INVALID_PRODUCER_ID_MAPPING, -1)
    ]
    fenced = writer.batch(topic, 0)
    writer.init()
    assert writer.send(version, topic, {0: fenced}) == [(Error.INVALID_PRODUCER_EPOCH, -1)]


@pytest.mark.parametrize("version", [9, *ADDS])
def test_produce_of_several_producers_or_without_the_id(topic: str, writer: Writer, version: int) -> None:
    batches = {0: writer.batch(topic, 0), 1: writer.batch(topic, 1, producer_epoch=1)}
    assert writer.send(version, topic, batches) == [(Error.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
    batches = {0: writer.batch(topic, 0, transactional=False), 1: writer.batch(topic, 1)}
    refused = [(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)] * 2
    assert writer.send(version, topic, batches, id=None) == refused


@pytest.mark.parametrize("version", [9, *ADDS])
def test_produce_of_ordinary_batches_with_a_transactional_id(
    client: Any, topic: str, writer: Writer, reader: Reader, version: int
) -> None:
    assert writer.send(version, topic, {0: client.batch(b"plain")}) == [(Error.NONE, 0)]
    idempotent = writer.batch(topic, 0, transactional=False)
    assert writer.send(version, topic, {0: idempotent}) == [(Error.NONE, 1)]
    assert reader.fetch().last_stable_offset == 2


@pytest.mark.parametrize("version", [9, *ADDS])
def test_produce_outside_of_the_open_transaction(topic: str, writer: Writer, version: int) -> None:
    writer.add(topic, 0)
    assert writer.write(version, topic) is Error.NONE
    assert writer.write(version, topic, transactional=False) is Error.INVALID_TXN_STATE
    assert writer.write(version, topic, sequence=0) is Error.NONE  # a retry
    assert writer.write(version, topic, control=True) is Error.INVALID_RECORD


@pytest.mark.parametrize("version", [9, *ADDS])
def test_produce_to_internal_topics(client: Any, writer: Writer, version: int) -> None:
    make_groups(client)
    assert writer.send(version, OFFSETS_TOPIC, {0: client.batch(b"x")}) == [(Error.INVALID_TOPIC_EXCEPTION, -1)]
    refused = writer.send(version, OFFSETS_TOPIC, {0: client.batch(b"x")}, id=None)
    assert refused == [(Error.INVALID_TOPIC_EXCEPTION, -1)]


@pytest.mark.parametrize("version", range(3))
def test_delete_records_of_internal_topics(client: Any, version: int) -> None:
    make_groups(client)
    rows = [{"partition_index": index, "offset": 0} for index in (0, 99)]
    answer = client.ask(
        "DeleteRecords", version, topics=[{"name": OFFSETS_TOPIC, "partitions": rows}], timeout_ms=10_000
    )
    errors = {part.partition_index: Error(part.error_code) for part in answer.topics[0].partitions}
    assert errors[0] is Error.INVALID_TOPIC_EXCEPTION


# ── Fetch ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_by_isolation_level(client: Any, topic: str, writer: Writer, reader: Reader, version: int) -> None:
    client.produce(topic, client.batch(b"plain"))
    other = Writer(client, "-other")
    assert writer.write(12, topic) is Error.NONE
    assert other.write(12, topic) is Error.NONE
    client.produce(topic, client.batch(b"plain"))
    part = reader.fetch(version)
    assert offsets(part) == [0] and aborted(part) == []
    assert (part.high_watermark, part.last_stable_offset) == (4, 1)
    part = reader.fetch(version, isolation_level=0)
    assert offsets(part) == [0, 1, 2, 3]
    assert part.aborted_transactions is None and part.last_stable_offset == 1
    assert offsets(reader.fetch(version, 1)) == []
    other.end(5, commit=True)
    writer.end(5, commit=False)
    reader.stable(6)
    part = reader.fetch(version)
    assert offsets(part) == [0, 1, 2, 3, 4, 5]
    assert aborted(part) == [1]
    assert reader.fetch(version, 9).error_code == Error.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [12, 18])
def test_fetch_waits_for_the_last_stable_offset(topic: str, writer: Writer, reader: Reader, version: int) -> None:
    assert writer.write(12, topic, 0, bytes(500)) is Error.NONE
    part = reader.fetch(version, max_wait_ms=100)
    assert offsets(part) == [] and part.high_watermark == 1
    writer.end(5, commit=True)
    part = reader.fetch(version, max_wait_ms=10_000)
    assert offsets(part) == [0, 1]


@pytest.mark.parametrize("version", [7, 18])
def test_fetch_in_a_session(client: Any, topic: str, writer: Writer, reader: Reader, version: int) -> None:
    assert writer.write(12, topic) is Error.NONE
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
    topics = [{"topic": topic, "topic_id": reader.topic_id, "partitions": [part]}]
    asked = {"replica_id": -1, "isolation_level": READ_COMMITTED, "min_bytes": 1, "max_bytes": 1 << 20}
    answer = client.ask("Fetch", version, session_id=0, session_epoch=0, topics=topics, max_wait_ms=0, **asked)
    session_id = answer.session_id
    assert session_id and answer.responses[0].partitions[0].last_stable_offset == 0
    answer = client.ask("Fetch", version, session_id=session_id, session_epoch=1, topics=[], max_wait_ms=0, **asked)
    assert answer.responses == []
    writer.end(5, commit=False)
    answer = client.ask(
        "Fetch", version, session_id=session_id, session_epoch=2, topics=[], max_wait_ms=10_000, **asked
    )
    (part,) = answer.responses[0].partitions
    assert offsets(part) == [0, 1] and aborted(part) == [0]


# ── ListOffsets ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(2, 12))
def test_list_offsets_by_isolation_level(
    client: Any, topic: str, writer: Writer, reader: Reader, version: int, now_ms: int
) -> None:
    client.produce(topic, client.batch(b"plain", timestamp=now_ms - 9000))
    assert writer.write(12, topic, timestamp=now_ms - 5000) is Error.NONE
    client.produce(topic, client.batch(b"plain", timestamp=now_ms - 7000))
    times = [-1, -2, now_ms - 9500, now_ms - 8000, now_ms - 6000, now_ms - 1000, *([-3] if version >= 7 else [])]
    found = {(level, time): list_offset(client, version, topic, time, level) for level in (0, 1) for time in times}
    assert (found[0, -1], found[1, -1]) == (3, 1)
    assert (found[0, times[3]], found[1, times[3]]) == (1, -1)
    writer.end(5, commit=True)
    reader.stable(4)
    for level in (0, 1):
        for time in times:
            list_offset(client, version, topic, time, level, {"*.timestamp": "markers have the broker's own time"})
        assert list_offset(client, version, topic, -1, level) == 4
        assert list_offset(client, version, topic, now_ms - 1000, level, {"*.timestamp": "of the marker"}) == 3


def list_offset(
    client: Any,
    version: int,
    topic: str,
    timestamp: int,
    isolation_level: int,
    differs: Mapping[str, str] | None = None,
) -> int:
    rows = [{"partition_index": 0, "timestamp": timestamp}]
    client.about = f"isolation {isolation_level}, time {timestamp}: "
    answer = client.ask(
        "ListOffsets",
        version,
        replica_id=-1,
        isolation_level=isolation_level,
        differs=differs,
        topics=[{"name": topic, "partitions": rows}],
    )
    offset: int = answer.topics[0].partitions[0].offset
    return offset


# ── WriteTxnMarkers ──────────────────────────────────────────────────────────────────────────────────────────────────


def write_markers(client: Any, version: int, *markers: Mapping[str, Any], **options: Any) -> list[Error]:
    """The errors of all partitions, in order."""
    rows = [
        {"producer_epoch": 0, "coordinator_epoch": 0, "transaction_result": True, "transaction_version": 0, **marker}
        for marker in markers
    ]
    answer = client.ask("WriteTxnMarkers", version, markers=rows, **options)
    return [
        Error(part.error_code)
        for marker in answer.markers
        for found in sorted(marker.topics, key=lambda found: found.name)
        for part in sorted(found.partitions, key=lambda part: part.partition_index)
    ]


def on(topic: str, *indexes: int) -> list[dict[str, Any]]:
    return [{"name": topic, "partition_indexes": list(indexes)}]


@pytest.mark.parametrize("version", [1, 2])
def test_markers_end_a_transaction(topic: str, client: Any, writer: Writer, reader: Reader, version: int) -> None:
    assert writer.write(12, topic) is Error.NONE
    producer = {"producer_id": writer.producer_id, "topics": on(topic, 0)}
    assert write_markers(client, version, {**producer, "transaction_result": False}) == [Error.NONE]
    part = reader.fetch()
    assert offsets(part) == [0, 1] and aborted(part) == [0] and part.last_stable_offset == 2
    assert write_markers(client, version, producer) == [Error.NONE]  # without a transaction it is a record like others
    assert reader.fetch().last_stable_offset == 3


@pytest.mark.parametrize("version", [1, 2])
def test_markers_of_older_producers_and_coordinators(client: Any, topic: str, writer: Writer, version: int) -> None:
    producer = {"producer_id": writer.producer_id, "topics": on(topic, 0)}
    assert write_markers(client, version, {**producer, "producer_epoch": 3, "coordinator_epoch": 5}) == [Error.NONE]
    older = {**producer, "producer_epoch": 2, "coordinator_epoch": 5}
    assert write_markers(client, version, older) == [Error.INVALID_PRODUCER_EPOCH]
    older = {**producer, "producer_epoch": 3, "coordinator_epoch": 4}
    assert write_markers(client, version, older) == [Error.TRANSACTION_COORDINATOR_FENCED]
    newer = {**producer, "producer_epoch": 4, "coordinator_epoch": 6}
    assert write_markers(client, version, newer) == [Error.NONE]


def test_markers_of_the_second_protocol_are_strict(client: Any, topic: str, writer: Writer, reader: Reader) -> None:
    assert writer.write(12, topic) is Error.NONE
    marker = {"producer_id": writer.producer_id, "topics": on(topic, 0), "transaction_version": 2}
    assert write_markers(client, 2, marker) == [Error.INVALID_PRODUCER_EPOCH]
    assert write_markers(client, 2, {**marker, "producer_epoch": 1}) == [Error.NONE]
    assert write_markers(client, 2, {**marker, "producer_epoch": 1}) == [Error.NONE]  # its answer got lost
    assert write_markers(client, 2, marker) == [Error.INVALID_PRODUCER_EPOCH]
    assert reader.fetch().last_stable_offset == 3


@pytest.mark.parametrize("version", [1, 2])
def test_markers_for_many(client: Any, topic: str, writer: Writer, version: int) -> None:
    other = Writer(client, "-other")
    nowhere = {"producer_id": writer.producer_id, "topics": on(topic, 7) + on(topic + "-none", 0)}
    assert write_markers(client, version) == []
    assert write_markers(client, version, {"producer_id": writer.producer_id, "topics": []}) == []
    assert write_markers(client, version, nowhere) == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2
    found = write_markers(
        client,
        version,
        {"producer_id": writer.producer_id, "topics": on(topic, 0, 1)},
        {"producer_id": other.producer_id, "topics": on(topic, 0, 9)},
    )
    assert sorted(found) == [Error.NONE] * 3 + [Error.UNKNOWN_TOPIC_OR_PARTITION]


# ── DescribeProducers ────────────────────────────────────────────────────────────────────────────────────────────────


def describe_producers(client: Any, topic: str, *indexes: int, **options: Any) -> list[Any]:
    answer = client.ask("DescribeProducers", 0, topics=on(topic, *indexes), **options)
    found: list[Any] = answer.topics[0].partitions
    return found


def test_describe_producers(client: Any, topic: str, writer: Writer, reader: Reader) -> None:
    assert describe_producers(client, topic, 0)[0].active_producers == []
    client.produce(topic, client.batch(b"nobody"))
    assert writer.write(12, topic, 0, b"a", b"b") is Error.NONE
    (found,) = describe_producers(client, topic, 0)[0].active_producers
    assert (found.producer_epoch, found.last_sequence, found.current_txn_start_offset) == (0, 1, 1)
    assert found.coordinator_epoch == -1
    writer.end(5, commit=True)
    reader.stable(4)
    (found,) = describe_producers(client, topic, 0, differs=MARKER_TIME)[0].active_producers
    assert (found.producer_epoch, found.last_sequence, found.current_txn_start_offset) == (1, -1, -1)
    assert writer.write(12, topic) is Error.NONE
    (found,) = describe_producers(client, topic, 0)[0].active_producers
    assert (found.producer_epoch, found.last_sequence, found.current_txn_start_offset) == (1, 0, 4)


def test_describe_producers_of_older_clients(client: Any, topic: str, writer: Writer, reader: Reader) -> None:
    writer.add(topic, 0)
    assert writer.write(9, topic, 0, b"a", b"b") is Error.NONE
    writer.end(4, commit=True)
    reader.stable(3)
    (found,) = describe_producers(client, topic, 0, differs=MARKER_TIME)[0].active_producers
    assert (found.producer_epoch, found.last_sequence, found.current_txn_start_offset) == (0, 1, -1)
    assert found.coordinator_epoch == 0


def test_describe_producers_that_are_not_there(client: Any, topic: str) -> None:
    assert describe_producers(client, topic, 5)[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert describe_producers(client, topic + "-none", 0)[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert describe_producers(client, "a b", 0)[0].error_code == Error.INVALID_TOPIC_EXCEPTION


# ── TxnOffsetCommit ──────────────────────────────────────────────────────────────────────────────────────────────────


def make_groups(client: Any) -> None:
    client.ask(
        "FindCoordinator",
        6,
        key_type=0,
        coordinator_keys=[client.prefix],
        until=lambda answer: answer.coordinators[0].error_code == Error.NONE,
    )


class Group:
    """Offsets of a group without members, committed in a writer's transactions."""

    def __init__(self, client: Any, writer: Writer, topic: str) -> None:
        make_groups(client)
        self.client = client
        self.writer = writer
        self.topic = topic
        self.id = client.prefix + "-group"

    def add(self, version: int = 3) -> None:
        answer = self.client.ask(
            "AddOffsetsToTxn",
            version,
            transactional_id=self.writer.id,
            producer_id=self.writer.producer_id,
            producer_epoch=self.writer.epoch,
            group_id=self.id,
            until=lambda answer: answer.error_code != Error.CONCURRENT_TRANSACTIONS,
            is_patient=True,
        )
        assert answer.error_code == Error.NONE

    def commit(self, version: int, offset: int, **other: Any) -> list[Error]:
        asked = {
            "transactional_id": self.writer.id,
            "group_id": self.id,
            "producer_id": self.writer.producer_id,
            "producer_epoch": self.writer.epoch,
            "generation_id": -1,
            "member_id": "",
            "topics": [commit_of(self.topic, [0], offset)],
            **other,
        }
        busy = (*BUSY, Error.CONCURRENT_TRANSACTIONS)
        answer = self.client.ask(
            "TxnOffsetCommit",
            version,
            until=lambda answer: not any(part.error_code in busy for each in answer.topics for part in each.partitions),
            is_patient=True,
            **asked,
        )
        return [Error(part.error_code) for each in answer.topics for part in each.partitions]

    def committed(self, *, stable: bool = False, until: int | None = None) -> tuple[Error, int]:
        answer = self.client.ask(
            "OffsetFetch",
            8,
            groups=[{"group_id": self.id, "topics": [{"name": self.topic, "partition_indexes": [0]}]}],
            require_stable=stable,
            until=lambda answer: until is None or _committed(answer) == (Error.NONE, until),
            is_patient=True,
        )
        return _committed(answer)


def _committed(answer: Any) -> tuple[Error, int]:
    (part,) = answer.groups[0].topics[0].partitions
    return Error(part.error_code), part.committed_offset


def commit_of(topic: str, indexes: Iterable[int], offset: int) -> dict[str, Any]:
    rows = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 0,
            "committed_metadata": "m",
        }
        for index in indexes
    ]
    return {"name": topic, "partitions": rows}


@pytest.mark.parametrize("version", range(6))
def test_offsets_count_when_the_transaction_commits(client: Any, topic: str, writer: Writer, version: int) -> None:
    group = Group(client, writer, topic)
    refused = {4: Error.TRANSACTION_ABORTABLE, 5: Error.NONE}.get(version, Error.INVALID_TXN_STATE)
    ending = 5 if version == 5 else 4
    for commit, offset, known in ((True, 5, -1), (False, 9, 5), (True, 11, 5)):
        if version < 5:
            assert group.commit(version, offset) == [refused]
            group.add()
        assert group.commit(version, offset - 1) == [Error.NONE]
        assert group.commit(version, offset) == [Error.NONE]
        assert group.committed() == (Error.NONE, known)
        assert group.committed(stable=True) == (Error.UNSTABLE_OFFSET_COMMIT, -1)
        writer.end(ending, commit=commit)
        assert group.committed(stable=True, until=offset if commit else known)[0] is Error.NONE


@pytest.mark.parametrize("version", range(6))
def test_offset_commits_that_are_refused(client: Any, topic: str, writer: Writer, version: int) -> None:
    group = Group(client, writer, topic)
    group.add()
    assert group.commit(version, 1, producer_id=918_273_645) == [Error.INVALID_PRODUCER_ID_MAPPING]
    assert group.commit(version, 1, producer_epoch=3) == [Error.INVALID_PRODUCER_EPOCH]
    assert group.commit(version, 1, group_id="") == [Error.INVALID_GROUP_ID]
    assert (
        group.commit(version, 1, topics=[commit_of(topic + "-none", [0, 1], 1)])
        == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2
    )
    found = group.commit(version, 1, topics=[commit_of(topic, [0, 7], 1)])
    assert sorted(found) == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert group.commit(version, 1, topics=[]) == []
    if version >= 3:
        assert group.commit(version, 1, generation_id=4, member_id="nobody")[0] is not Error.NONE
    writer.end(4, commit=False)


@pytest.mark.parametrize("version", [4, 5])
def test_offset_commits_of_a_fenced_producer(client: Any, topic: str, writer: Writer, version: int) -> None:
    group = Group(client, writer, topic)
    group.add()
    assert group.commit(version, 1) == [Error.NONE]
    old = writer.epoch
    writer.init()
    assert group.commit(version, 2, producer_epoch=old) == [Error.INVALID_PRODUCER_EPOCH]
    assert group.committed(stable=True, until=-1) == (Error.NONE, -1)


@pytest.mark.parametrize("version", [1, 2])
def test_markers_for_a_groups_offsets(client: Any, topic: str, writer: Writer, version: int) -> None:
    group = Group(client, writer, topic)
    assert group.commit(5, 3) == [Error.NONE]
    marker = {"producer_id": writer.producer_id, "topics": on(OFFSETS_TOPIC, 0, 1)}
    assert write_markers(client, version, marker) == [Error.NONE] * 2
    assert group.committed(stable=True, until=3) == (Error.NONE, 3)
    older = {**marker, "coordinator_epoch": -1}
    assert write_markers(client, version, older) == [Error.TRANSACTION_COORDINATOR_FENCED] * 2
