"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords in every version."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.wire.records import Compression

LIST = range(1, 12)
EPOCH = range(2, 5)
DELETE = range(3)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING_UPLOAD: 11}


def offset_of(client, version, topic, timestamp, *, partition=0, epoch=-1, isolation=0, differs=None):
    asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    answer = client.ask(
        "ListOffsets",
        version,
        differs=differs,
        replica_id=-1,
        isolation_level=isolation,
        topics=[{"name": topic, "partitions": [asked]}],
        timeout_ms=5000,
    )
    (found,) = answer.topics
    assert found.name == topic
    (part,) = found.partitions
    assert part.partition_index == partition
    return part.error_code, part.offset, part.timestamp, part.leader_epoch


@pytest.fixture
def filled(client, now_ms):
    """A topic that the test may change."""
    return fill(client, now_ms)


@pytest.fixture
def stored(client, now_ms):
    """The same, shared by all tests that only read."""
    return client.once("offsets", lambda: fill(client, now_ms))


def fill(client, now_ms) -> str:
    """A topic with records at now, +10, +20 | +100, +90, +110 | +50 (compressed, the last two)."""
    topic = client.topic(partitions=2)
    client.produce(topic, client.batch(b"a", b"b", b"c", timestamp=now_ms - 1000, step_ms=10))
    client.produce(
        topic, client.batch(b"d", b"e", b"f", timestamp=now_ms - 900, step_ms=5, compression=Compression.ZSTD)
    )
    client.produce(topic, client.batch(b"g", timestamp=now_ms - 950, compression=Compression.GZIP))
    return topic


@pytest.mark.parametrize("version", LIST)
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize(
    "special", [LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD, -7, -99]
)
def test_special_times(client, stored, now_ms, version, isolation, special):
    epoch = 0 if version >= 4 else -1
    expected = {
        LATEST: (Error.NONE, 7, -1, epoch),
        EARLIEST: (Error.NONE, 0, -1, epoch),
        MAX_TIMESTAMP: (Error.NONE, 5, now_ms - 890, epoch),
        EARLIEST_LOCAL: (Error.NONE, 0, -1, epoch),
        LATEST_TIERED: (Error.NONE, -1, -1, -1),
        PENDING_UPLOAD: (Error.NONE, -1, -1, -1),
    }.get(special, (Error.UNSUPPORTED_VERSION, -1, -1, -1))
    if version < SINCE.get(special, 0):
        expected = (Error.UNSUPPORTED_VERSION, -1, -1, -1)
    assert offset_of(client, version, stored, special, isolation=isolation) == expected


@pytest.mark.parametrize("version", LIST)
@pytest.mark.parametrize(
    ("after_ms", "offset", "found_ms"),
    [
        (-5000, 0, -1000),
        (-1000, 0, -1000),
        (-999, 1, -990),
        (-985, 2, -980),
        (-950, 3, -900),
        (-897, 4, -895),
        (-890, 5, -890),
    ],
)
def test_the_record_of_a_time(client, stored, now_ms, version, after_ms, offset, found_ms):
    epoch = 0 if version >= 4 else -1
    answer = offset_of(client, version, stored, now_ms + after_ms)
    assert answer == (Error.NONE, offset, now_ms + found_ms, epoch)


@pytest.mark.parametrize("version", LIST)
def test_a_time_after_everything(client, stored, now_ms, version):
    assert offset_of(client, version, stored, now_ms - 889) == (Error.NONE, -1, -1, -1)
    assert offset_of(client, version, stored, 0)[1] == 0


@pytest.mark.parametrize("version", LIST)
@pytest.mark.parametrize("special", [LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, 5])
def test_an_empty_partition(client, version, special):
    topic = client.once("empty", client.topic)
    offset_of(client, version, topic, special)


@pytest.mark.parametrize("version", LIST)
def test_offsets_of_what_is_not_there(client, stored, version):
    unknown = (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    assert offset_of(client, version, stored, LATEST, partition=2) == unknown
    assert offset_of(client, version, stored, LATEST, partition=-1) == unknown
    assert offset_of(client, version, f"{client.prefix}-none", LATEST) == unknown
    assert offset_of(client, version, "a/b", LATEST) == unknown


@pytest.mark.parametrize("version", LIST[3:])
def test_offsets_with_an_epoch(client, stored, version):
    assert offset_of(client, version, stored, LATEST, epoch=0)[0] == Error.NONE
    assert offset_of(client, version, stored, LATEST, epoch=1)[0] == Error.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", LIST)
def test_the_end_of_a_brokers_own_copy(client, stored, version):
    """With the replica id for debugging it is told by whoever holds one."""
    rows = [{"partition_index": 0, "timestamp": LATEST}, {"partition_index": 1, "timestamp": EARLIEST}]
    answer = client.ask("ListOffsets", version, replica_id=-2, topics=[{"name": stored, "partitions": rows}])
    assert [(part.error_code, part.offset) for part in answer.topics[0].partitions] == [(0, 7), (0, 0)]


@pytest.mark.parametrize("version", LIST)
def test_several_partitions_and_one_twice(client, stored, version):
    rows = [{"partition_index": index, "timestamp": LATEST} for index in (0, 1, 5, 0)]
    answer = client.ask("ListOffsets", version, replica_id=-1, topics=[{"name": stored, "partitions": rows}])
    parts = answer.topics[0].partitions
    codes = {part.partition_index: part.error_code for part in parts}
    assert codes == {0: Error.INVALID_REQUEST, 1: Error.NONE, 5: Error.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", LIST)
def test_no_topics_and_no_partitions(client, stored, version):
    assert client.ask("ListOffsets", version, replica_id=-1, topics=[]).topics == []
    asked = [{"name": stored, "partitions": []}]
    assert client.ask("ListOffsets", version, replica_id=-1, topics=asked).topics == []


@pytest.mark.parametrize("version", LIST)
@pytest.mark.parametrize("replica_id", [-2, 0, 5])
def test_other_askers(client, stored, version, replica_id):
    rows = [{"partition_index": 0, "timestamp": LATEST}]
    client.ask("ListOffsets", version, replica_id=replica_id, topics=[{"name": stored, "partitions": rows}])


# ── OffsetForLeaderEpoch ─────────────────────────────────────────────────────────────────────────────────────────


def end_of(client, version, topic, epoch, *, partition=0, current=-1, replica_id=-1):
    asked = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
    answer = client.ask(
        "OffsetForLeaderEpoch", version, replica_id=replica_id, topics=[{"topic": topic, "partitions": [asked]}]
    )
    (part,) = answer.topics[0].partitions
    return part.error_code, part.leader_epoch, part.end_offset


@pytest.mark.parametrize("version", EPOCH)
def test_where_an_epoch_ends(client, stored, version):
    assert end_of(client, version, stored, 0) == (Error.NONE, 0, 7)
    assert end_of(client, version, stored, 0, replica_id=-2) == (Error.NONE, 0, 7)
    assert end_of(client, version, stored, 1) == (Error.NONE, -1, -1)
    assert end_of(client, version, stored, -1) == (Error.NONE, -1, -1)
    assert end_of(client, version, stored, 0, partition=1) == (Error.NONE, 0, 0)


@pytest.mark.parametrize("version", EPOCH)
def test_epochs_of_what_is_not_there(client, stored, version):
    unknown = (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert end_of(client, version, stored, 0, partition=7) == unknown
    assert end_of(client, version, f"{client.prefix}-none", 0) == unknown
    assert end_of(client, version, stored, 0, current=0) == (Error.NONE, 0, 7)
    assert end_of(client, version, stored, 0, current=4) == (Error.UNKNOWN_LEADER_EPOCH, -1, -1)


# ── DeleteRecords ────────────────────────────────────────────────────────────────────────────────────────────────


def delete(client, version, topic, offset, *, partition=0):
    asked = {"partition_index": partition, "offset": offset}
    answer = client.ask("DeleteRecords", version, topics=[{"name": topic, "partitions": [asked]}], timeout_ms=5000)
    (found,) = answer.topics
    (part,) = found.partitions
    assert (found.name, part.partition_index) == (topic, partition)
    return part.error_code, part.low_watermark


@pytest.mark.parametrize("version", DELETE)
def test_delete_records(client, filled, version):
    assert delete(client, version, filled, 2) == (Error.NONE, 2)
    assert offset_of(client, 11, filled, EARLIEST) == (Error.NONE, 2, -1, 0)
    assert delete(client, version, filled, 1) == (Error.NONE, 2)
    assert delete(client, version, filled, 0) == (Error.NONE, 2)
    assert delete(client, version, filled, 8) == (Error.OFFSET_OUT_OF_RANGE, -1)
    assert delete(client, version, filled, -2) == (Error.OFFSET_OUT_OF_RANGE, -1)
    assert delete(client, version, filled, 7) == (Error.NONE, 7)
    assert offset_of(client, 11, filled, EARLIEST)[:2] == (Error.NONE, 7)
    assert offset_of(client, 11, filled, LATEST)[:2] == (Error.NONE, 7)
    reason = {"topics*": "Kafka shows the offset of a record that is deleted"}
    assert offset_of(client, 11, filled, MAX_TIMESTAMP, differs=reason)[:2] == (Error.NONE, -1)


@pytest.mark.parametrize("version", DELETE)
def test_delete_all_records(client, filled, version):
    assert delete(client, version, filled, -1) == (Error.NONE, 7)
    assert delete(client, version, filled, -1, partition=1) == (Error.NONE, 0)
    assert client.produce(filled, client.batch(b"next")) == [7]


@pytest.mark.parametrize("version", DELETE)
def test_delete_records_of_what_is_not_there(client, filled, version):
    unknown = (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(client, version, filled, 1, partition=9) == unknown
    assert delete(client, version, f"{client.prefix}-none", 1) == unknown


@pytest.mark.parametrize("version", DELETE)
def test_delete_records_of_a_compacted_topic(client, version):
    topic = client.topic(cleanup_policy="compact")
    client.produce(topic, client.batch(b"a", b"b"))
    assert delete(client, version, topic, 1) == (Error.POLICY_VIOLATION, -1)


@pytest.mark.parametrize("version", DELETE)
def test_delete_records_of_good_and_bad(client, filled, version):
    topics = [
        {"name": filled, "partitions": [{"partition_index": 0, "offset": 1}, {"partition_index": 7, "offset": 1}]},
        {"name": f"{client.prefix}-none", "partitions": [{"partition_index": 0, "offset": 1}]},
    ]
    answer = client.ask("DeleteRecords", version, topics=topics, timeout_ms=5000)
    codes = {
        (topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions
    }
    assert codes == {
        (filled, 0): Error.NONE,
        (filled, 7): Error.UNKNOWN_TOPIC_OR_PARTITION,
        (f"{client.prefix}-none", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
