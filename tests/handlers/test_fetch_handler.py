"""Fetch in every version: which bytes come, limits, waiting, errors, epochs."""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from penstock.base.errors import Error
from penstock.wire.batch import each_batch

VERSIONS = range(4, 19)
SOME = [4, 6, 7, 11, 12, 13, 16, 18]
#: With some errors Kafka has an empty list where others have null.
NO_TRANSACTIONS = {"*.aborted_transactions": "null or empty: none"}
PARTIAL = {"*.records": "Kafka cuts the last batch off in the middle, Penstock sends whole ones"}
NOBODY = UUID("12345678-1234-4234-8234-123456789012")


@pytest.fixture
def fetch(client):
    """Fetches from partitions of one topic: the answers by partition."""
    ids = {}

    def send(version, topic, *parts, differs=None, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, **more):
        if topic not in ids:
            ids[topic] = client.topic_id(topic)
        rows = [
            {
                "partition": index,
                "fetch_offset": offset,
                "partition_max_bytes": 1 << 20,
                "current_leader_epoch": -1,
                "last_fetched_epoch": -1,
            }
            | extra
            for index, offset, extra in parts
        ]
        answer = client.ask(
            "Fetch",
            version,
            differs=differs,
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=[{"topic": topic, "topic_id": ids[topic], "partitions": rows}],
            **more,
        )
        assert answer.error_code == Error.NONE
        return {part.partition_index: part for found in answer.responses for part in found.partitions}

    return send


def offsets_in(part) -> list[int]:
    """The base offsets of the batches in an answer; every one is whole."""
    records = memoryview(part.records or b"")
    batches = list(each_batch(records))
    assert sum(len(batch) for _, batch in batches) == len(records)
    return [header.base_offset for header, _ in batches]


@pytest.fixture
def filled(client):
    """A topic that the test may change."""
    return fill(client)


@pytest.fixture
def stored(client):
    """The same, shared by all tests that only read."""
    return client.once("fetch", lambda: fill(client))


def fill(client) -> str:
    """Batches at offsets 0 (3 records), 3 (2 records), 5 (1 record) in partition 0; 0 (1 record) in partition 1."""
    topic = client.topic(partitions=3)
    client.produce(topic, client.batch(b"a", b"b", b"c"), client.batch(b"d", b"e"), client.batch(b"f" * 1000))
    client.produce(topic, client.batch(b"g"), partition=1)
    return topic


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_from_the_beginning(stored, fetch, version, isolation_level):
    answer = fetch(version, stored, (0, 0, {}), (1, 0, {}), (2, 0, {}), isolation_level=isolation_level)
    assert {index: offsets_in(part) for index, part in answer.items()} == {0: [0, 3, 5], 1: [0], 2: []}
    assert [answer[index].high_watermark for index in range(3)] == [6, 1, 0]
    assert [answer[index].last_stable_offset for index in range(3)] == [6, 1, 0]
    assert answer[0].log_start_offset == (0 if version >= 5 else -1)
    assert answer[0].preferred_read_replica == -1
    assert answer[0].aborted_transactions == ([] if isolation_level else None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("offset", "batches"), [(1, [0, 3, 5]), (2, [0, 3, 5]), (3, [3, 5]), (4, [3, 5]), (5, [5]), (6, [])]
)
def test_from_inside_a_batch(stored, fetch, version, offset, batches):
    assert offsets_in(fetch(version, stored, (0, offset, {}))[0]) == batches


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [7, 1000, -1, -2])
def test_out_of_range(stored, fetch, version, offset):
    answer = fetch(version, stored, (0, offset, {}))[0]
    assert answer.error_code == Error.OFFSET_OUT_OF_RANGE
    assert offsets_in(answer) == []
    assert answer.high_watermark == answer.last_stable_offset == answer.log_start_offset == -1


@pytest.mark.parametrize("version", VERSIONS)
def test_before_the_start_of_the_log(client, filled, fetch, version):
    rows = [{"name": filled, "partitions": [{"partition_index": 0, "offset": 3}]}]
    client.ask("DeleteRecords", 2, topics=rows, timeout_ms=5000)
    assert fetch(version, filled, (0, 1, {}))[0].error_code == Error.OFFSET_OUT_OF_RANGE
    answer = fetch(version, filled, (0, 3, {}))[0]
    assert offsets_in(answer) == [3, 5]
    assert answer.log_start_offset == (3 if version >= 5 else -1)


@pytest.mark.parametrize("version", SOME)
@pytest.mark.parametrize("size", [0, 1, 60, 100, 250, 1000])
def test_the_bytes_of_a_partition(stored, fetch, version, size):
    answer = fetch(
        version, stored, (0, 0, {"partition_max_bytes": size}), (1, 0, {"partition_max_bytes": size}), differs=PARTIAL
    )
    assert offsets_in(answer[0])[:1] == [0]


@pytest.mark.parametrize("version", SOME)
@pytest.mark.parametrize("size", [0, 1, 60, 100, 250, 1000])
def test_the_bytes_of_an_answer(stored, fetch, version, size):
    answer = fetch(version, stored, (0, 0, {}), (1, 0, {}), max_bytes=size, differs=PARTIAL)
    assert offsets_in(answer[0])[:1] == [0]


@pytest.mark.parametrize("version", SOME)
def test_the_first_partition_with_data_gets_a_batch(stored, fetch, version):
    answer = fetch(version, stored, (2, 0, {}), (0, 5, {"partition_max_bytes": 1}), (1, 0, {}), max_bytes=1)
    assert {index: offsets_in(part) for index, part in answer.items()} == {2: [], 0: [5], 1: []}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_there(client, stored, fetch, version):
    answer = fetch(version, stored, (0, 0, {}), (9, 0, {}), differs=NO_TRANSACTIONS)
    assert answer[9].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert answer[0].error_code == Error.NONE and offsets_in(answer[0]) == [0, 3, 5]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_not_there(client, version):
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    for name, topic_id in ((f"{client.prefix}-none", NOBODY), ("", UUID(int=0)), ("a/b", NOBODY)):
        answer = client.ask(
            "Fetch",
            version,
            differs=NO_TRANSACTIONS,
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            topics=[{"topic": name, "topic_id": topic_id, "partitions": rows}],
        )
        (found,) = answer.responses
        expected = Error.UNKNOWN_TOPIC_ID if version >= 13 else Error.UNKNOWN_TOPIC_OR_PARTITION
        assert found.partitions[0].error_code == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_asked(client, version):
    answer = client.ask("Fetch", version, replica_id=-1, max_wait_ms=0, min_bytes=1, topics=[])
    assert answer.responses == []


@pytest.mark.parametrize("version", VERSIONS[5:])
def test_epochs_are_fenced(stored, fetch, version):
    assert fetch(version, stored, (0, 0, {"current_leader_epoch": 0}))[0].error_code == Error.NONE
    answer = fetch(version, stored, (0, 0, {"current_leader_epoch": 1}))[0]
    assert answer.error_code == Error.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", VERSIONS[8:])
def test_where_two_logs_part(stored, fetch, version):
    same = fetch(version, stored, (0, 3, {"last_fetched_epoch": 0}))[0]
    assert (same.diverging_epoch.epoch, same.diverging_epoch.end_offset) == (-1, -1)
    assert offsets_in(same) == [3, 5]
    beyond = fetch(version, stored, (0, 7, {"last_fetched_epoch": 0}))[0]
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (0, 6)
    unknown = fetch(version, stored, (0, 3, {"last_fetched_epoch": 1}))[0]
    assert unknown.error_code == Error.OFFSET_OUT_OF_RANGE
    known = fetch(version, stored, (0, 3, {"last_fetched_epoch": 1, "current_leader_epoch": 0}))[0]
    assert known.error_code == Error.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [4, 12, 18])
def test_waiting_for_bytes(client, stored, fetch, version):
    start = time.monotonic()
    answer = fetch(version, stored, (0, 6, {}), max_wait_ms=200, min_bytes=1)
    assert time.monotonic() - start >= 0.19
    assert offsets_in(answer[0]) == []
    start = time.monotonic()
    fetch(version, stored, (0, 5, {}), max_wait_ms=10_000, min_bytes=1)
    assert time.monotonic() - start < 5
    start = time.monotonic()
    assert offsets_in(fetch(version, stored, (0, 0, {}), max_wait_ms=200, min_bytes=1 << 20)[0]) == [0, 3, 5]
    assert time.monotonic() - start >= 0.19


@pytest.mark.parametrize("version", [4, 12, 18])
def test_errors_do_not_wait(stored, fetch, version):
    start = time.monotonic()
    fetch(version, stored, (0, 6, {}), (1, 99, {}), max_wait_ms=10_000)
    fetch(version, stored, (9, 0, {}), max_wait_ms=10_000, differs=NO_TRANSACTIONS)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_partition_that_is_not_there_does_not_end_the_wait_of_the_others(stored, fetch, version):
    start = time.monotonic()
    fetch(version, stored, (0, 6, {}), (9, 0, {}), max_wait_ms=200, differs=NO_TRANSACTIONS)
    assert time.monotonic() - start >= 0.19


@pytest.mark.parametrize("version", SOME)
def test_a_partition_twice(stored, fetch, version):
    once = {"responses*": "Kafka answers only the last of the two"}
    assert offsets_in(fetch(version, stored, (0, 3, {}), (0, 5, {}), differs=once)[0]) == [5]


@pytest.mark.parametrize("version", [4, 11, 14, 15, 18])
def test_a_stranger_that_says_it_is_a_replica(client, stored, version):
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    answer = client.ask(
        "Fetch",
        version,
        differs={"*.current_leader.*": "told to followers only by Kafka, which have it from elsewhere here"},
        replica_id=5,
        replica_state={"replica_id": 5, "replica_epoch": 1},
        max_wait_ms=0,
        min_bytes=1,
        topics=[{"topic": stored, "topic_id": client.topic_id(stored), "partitions": rows}],
    )
    assert answer.responses[0].partitions[0].error_code == Error.NOT_LEADER_OR_FOLLOWER
