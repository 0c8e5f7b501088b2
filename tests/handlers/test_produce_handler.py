"""Produce in every version: acks, good and bad batches, several partitions, and the sequences of producers."""

from __future__ import annotations

import struct
from uuid import UUID
from zlib import crc32

import pytest
from crc32c import crc32c

from penstock.base.errors import Error
from penstock.wire.records import Compression

SERVED = range(3, 14)
REFUSED = range(3)
NOBODY = UUID("12345678-1234-4234-8234-123456789012")


@pytest.fixture
def topic(client):
    return client.topic(partitions=3)


@pytest.fixture
def produce(client):
    """Sends batches by partition; the answers by partition."""

    def send(version, topic, parts, *, acks=-1, differs=None, timeout_ms=5000, **more):
        data = [{"index": index, "records": records} for index, records in parts]
        topics = [{"name": topic, "topic_id": client.topic_id(topic), "partition_data": data}]
        answer = client.ask(
            "Produce", version, differs=differs, acks=acks, timeout_ms=timeout_ms, topic_data=topics, **more
        )
        (found,) = answer.responses
        return {part.index: part for part in found.partition_responses}

    return send


def end_offset(client, topic, partition=0, differs=None):
    rows = [{"partition_index": partition, "timestamp": -1}]
    answer = client.ask("ListOffsets", 7, differs=differs, replica_id=-1, topics=[{"name": topic, "partitions": rows}])
    return answer.topics[0].partitions[0].offset


def sealed(batch: bytes) -> bytes:
    """The same with a right checksum again."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def changed(batch: bytes, position: int, pattern: str, value: int) -> bytes:
    size = struct.calcsize(pattern)
    return batch[:position] + struct.pack(pattern, value) + batch[position + size :]


def old_message(magic: int) -> bytes:
    """A message of the formats before batches."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1000) if magic else b"") + struct.pack(">i", -1)
    body += struct.pack(">i", 3) + b"old"
    return struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body


@pytest.mark.parametrize("version", SERVED)
@pytest.mark.parametrize("acks", [1, -1])
def test_one_batch(client, topic, produce, version, acks):
    first = produce(version, topic, [(0, client.batch(b"a", b"b"))], acks=acks)[0]
    assert (first.error_code, first.base_offset, first.log_append_time_ms) == (Error.NONE, 0, -1)
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert (first.record_errors, first.error_message) == ([], None)
    assert produce(version, topic, [(0, client.batch(b"c"))], acks=acks)[0].base_offset == 2
    assert end_offset(client, topic) == 3


@pytest.mark.parametrize("version", REFUSED)
@pytest.mark.parametrize("acks", [1, -1])
def test_versions_that_are_only_advertised(client, topic, produce, version, acks):
    reason = {"closed": "Kafka closes the connection; an answer tells a client what is wrong"}
    answer = produce(version, topic, [(0, client.batch(b"a"))], acks=acks, differs=reason)[0]
    assert (answer.error_code, answer.base_offset) == (Error.UNSUPPORTED_VERSION, -1)
    assert end_offset(client, topic) == 0


@pytest.mark.parametrize("version", SERVED)
def test_no_answer_to_acks_0(client, topic, version):
    data = [{"index": 0, "records": client.batch(b"a")}]
    rows = [{"name": topic, "topic_id": client.topic_id(topic), "partition_data": data}]
    client.send("Produce", version, acks=0, timeout_ms=1000, topic_data=rows)
    assert not client.is_closed()
    assert end_offset(client, topic) == 1


@pytest.mark.parametrize("version", SERVED)
def test_a_mistake_with_acks_0_closes(client, topic, version):
    data = [{"index": 7, "records": client.batch(b"a")}]
    rows = [{"name": topic, "topic_id": client.topic_id(topic), "partition_data": data}]
    client.send("Produce", version, acks=0, timeout_ms=1000, topic_data=rows)
    assert client.is_closed()


@pytest.mark.parametrize("version", SERVED)
@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks(client, topic, produce, version, acks):
    answer = produce(version, topic, [(0, client.batch(b"a")), (1, client.batch(b"a"))], acks=acks)
    assert {part.error_code for part in answer.values()} == {Error.INVALID_REQUIRED_ACKS}
    assert end_offset(client, topic) == 0


@pytest.mark.parametrize("version", SERVED)
@pytest.mark.parametrize("acks", [1, -1])
def test_one_bad_partition_among_good_ones(client, topic, produce, version, acks):
    bad = bytearray(client.batch(b"x"))
    bad[-1] ^= 1
    parts = [(0, client.batch(b"a")), (1, bytes(bad)), (2, client.batch(b"b", b"c")), (9, client.batch(b"d"))]
    answer = produce(version, topic, parts, acks=acks)
    assert {index: part.error_code for index, part in answer.items()} == {
        0: Error.NONE,
        1: Error.CORRUPT_MESSAGE,
        2: Error.NONE,
        9: Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [end_offset(client, topic, index) for index in range(3)] == [1, 0, 2]


@pytest.mark.parametrize("version", SERVED)
def test_topics_that_are_not_there(client, topic, version):
    ids = {topic: client.topic_id(topic), f"{client.prefix}-none": NOBODY}
    rows = [
        {"name": name, "topic_id": topic_id, "partition_data": [{"index": 0, "records": client.batch(b"a")}]}
        for name, topic_id in ids.items()
    ]
    answer = client.ask("Produce", version, acks=1, timeout_ms=1000, topic_data=rows)
    codes = {found.topic_id if version >= 13 else found.name: found for found in answer.responses}
    missing = codes[NOBODY if version >= 13 else f"{client.prefix}-none"].partition_responses[0]
    assert missing.error_code == (Error.UNKNOWN_TOPIC_ID if version >= 13 else Error.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes[ids[topic] if version >= 13 else topic].partition_responses[0].error_code == Error.NONE


@pytest.mark.parametrize("version", SERVED)
def test_nothing_to_produce(client, topic, version):
    assert client.ask("Produce", version, acks=1, timeout_ms=1000, topic_data=[]).responses == []
    rows = [{"name": topic, "topic_id": client.topic_id(topic), "partition_data": []}]
    nothing = {"responses*": "Kafka leaves out a topic without partitions"}
    client.ask("Produce", version, acks=1, timeout_ms=1000, topic_data=rows, differs=nothing)


def bad_batches(batch):
    """What can be wrong with a batch: (name, bytes)."""
    good = batch(b"a", b"b")
    return {
        "no bytes": b"",
        "too short": good[:40],
        "cut off": good[:-1],
        "more bytes after it": good + b"x",
        "two batches": good + good,
        "wrong checksum": good[:-1] + bytes([good[-1] ^ 1]),
        "magic 0": old_message(0),
        "magic 1": old_message(1),
        "magic 3": changed(good, 16, ">b", 3),
        "a length that is too large": changed(good, 8, ">i", len(good)),
        "a negative length": changed(good, 8, ">i", -1),
        "a wrong last offset delta": sealed(changed(good, 23, ">i", 5)),
        "a negative last offset delta": sealed(changed(good, 23, ">i", -1)),
        "a wrong count": sealed(changed(good, 57, ">i", 3)),
        "a negative count": sealed(changed(good, 57, ">i", -1)),
        "a header without records": sealed(changed(changed(good, 57, ">i", 0), 23, ">i", -1)[:61]),
        "no records": sealed(changed(changed(changed(good, 57, ">i", 0), 23, ">i", -1), 8, ">i", 49)[:61]),
        "an unknown compression": sealed(changed(good, 21, ">h", 5)),
        "a control batch": sealed(changed(good, 21, ">h", 0x20)),
        "too large": batch(b"x" * 200_001),
        "a negative producer epoch": batch(b"a", producer_id=9, producer_epoch=-1, base_sequence=0),
        "no sequence": batch(b"a", producer_id=9, producer_epoch=0, base_sequence=-1),
    }


#: Where Kafka answers otherwise, and why that is not followed.
OTHER_ERRORS = {
    "more bytes after it": "Kafka takes it, and drops what comes after the first batch",
    "an unknown compression": "Kafka fails inside with UNKNOWN_SERVER_ERROR",
    "a negative producer epoch": "Kafka takes it",
}
#: The answer to a batch that was looked at and refused tells the log's start in Kafka; no client looks at it.
NO_START = {"*.log_start_offset": "not told with errors"}

#: Penstock does not look into batches to tell which of their records is to blame.
NO_RECORD_ERRORS = NO_START | {"*.record_errors*": "the broker does not look into batches"}


@pytest.mark.parametrize("version", [3, 7, 8, 12, 13])
def test_batches_that_are_refused(client, topic, produce, version):
    for name, records in bad_batches(client.batch).items():
        differs = {"responses*": OTHER_ERRORS[name]} if name in OTHER_ERRORS else NO_START
        client.about = f"{name}: "
        answer = produce(version, topic, [(0, records)], differs=differs)[0]
        assert answer.error_code != Error.NONE, name
        assert answer.base_offset == -1, name
    assert end_offset(client, topic, differs={"topics*": "see OTHER_ERRORS"}) == 0


@pytest.mark.parametrize("version", SERVED)
def test_no_records_at_all(client, topic, produce, version):
    answer = produce(version, topic, [(0, None), (1, client.batch(b"a"))], not_kafka="Kafka never answers")
    assert answer[1].error_code == Error.NONE
    assert answer[0].error_code == Error.INVALID_RECORD


@pytest.mark.parametrize("version", SERVED)
def test_a_partition_twice(client, topic, produce, version):
    dropped = {"responses*": "Kafka drops one of the two", "topics*": "Kafka drops one of the two"}
    produce(version, topic, [(0, client.batch(b"a")), (0, client.batch(b"b"))], differs=dropped)
    assert end_offset(client, topic, differs=dropped) == 2


@pytest.mark.parametrize("version", SERVED)
def test_a_topic_twice(client, topic, version):
    row = {
        "name": topic,
        "topic_id": client.topic_id(topic),
        "partition_data": [{"index": 0, "records": client.batch(b"a")}],
    }
    other = row | {"partition_data": [{"index": 1, "records": client.batch(b"b")}]}
    joined = {"responses*": "Kafka answers with one topic that has both partitions"}
    answer = client.ask("Produce", version, acks=1, timeout_ms=1000, topic_data=[row, other], differs=joined)
    parts = [part for found in answer.responses for part in found.partition_responses]
    assert [(part.index, part.error_code, part.base_offset) for part in parts] == [(0, 0, 0), (1, 0, 0)]
    assert end_offset(client, topic) == end_offset(client, topic, 1) == 1


@pytest.mark.parametrize("version", [3, 6, 7, 13])
@pytest.mark.parametrize("compression", list(Compression))
def test_compression(client, topic, produce, version, compression):
    answer = produce(version, topic, [(0, client.batch(b"a" * 500, b"b", compression=compression))])[0]
    expected = Error.NONE
    if compression is Compression.ZSTD and version < 7:
        expected = Error.UNSUPPORTED_COMPRESSION_TYPE
    assert answer.error_code == expected


@pytest.mark.parametrize("version", [3, 8, 13])
def test_log_append_time(client, produce, version):
    topic = client.topic(message_timestamp_type="LogAppendTime")
    time = {"*.log_append_time_ms": "the time of the append"}
    answer = produce(version, topic, [(0, client.batch(b"a", b"b"))], differs=time)[0]
    assert answer.error_code == Error.NONE
    assert answer.log_append_time_ms > 0


@pytest.mark.parametrize("version", [3, 8, 13])
def test_timestamps_out_of_bounds(client, produce, now_ms, version):
    topic = client.topic(message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="60000")
    for timestamp in (now_ms + 3_600_000, now_ms - 3_600_000):
        answer = produce(
            version, topic, [(0, client.batch(b"a", b"b", timestamp=timestamp))], differs=NO_RECORD_ERRORS
        )[0]
        assert answer.error_code == Error.INVALID_TIMESTAMP
    assert end_offset(client, topic) == 0


@pytest.mark.parametrize("version", [3, 8, 13])
def test_keys_are_needed_for_compaction(client, produce, version):
    topic = client.topic(cleanup_policy="compact")
    good = client.batch(b"a")
    keyless = client.keyless(b"a", b"b")
    assert produce(version, topic, [(0, good)])[0].error_code == Error.NONE
    answer = produce(version, topic, [(0, keyless)], differs=NO_RECORD_ERRORS)[0]
    assert answer.error_code == Error.INVALID_RECORD
    assert end_offset(client, topic) == 1


@pytest.mark.parametrize("version", SERVED)
def test_no_more_replicas_are_needed_than_there_are(client, produce, version):
    topic = client.topic(min_insync_replicas="2")
    assert produce(version, topic, [(0, client.batch(b"a"))], acks=-1)[0].error_code == Error.NONE


# ── producers with ids ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [3, 8, 11, 13])
def test_sequences(client, topic, produce, version):
    differs = NO_START | {"*.log_append_time_ms": "Kafka tells the producer's time for a batch that it has already"}

    def send(sequence, count=1, producer=4000, epoch=0):
        values = [b"v"] * count
        batch = client.batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(version, topic, [(0, batch)], differs=differs)[0]
        return answer.error_code, answer.base_offset

    assert send(0, 2) == (Error.NONE, 0)
    assert send(2) == (Error.NONE, 2)
    assert send(2) == (Error.NONE, 2)  # the same again
    assert send(0, 2) == (Error.NONE, 0)
    assert send(5)[0] == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in range(3, 8):
        assert send(sequence)[0] == Error.NONE
    assert send(3) == (Error.NONE, 3)  # the last five are remembered
    assert send(2)[0] in (Error.DUPLICATE_SEQUENCE_NUMBER, Error.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert send(0, epoch=1)[0] == Error.NONE
    assert send(1, epoch=0)[0] == Error.INVALID_PRODUCER_EPOCH
    assert send(5, epoch=2)[0] == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(7, producer=4001)[0] == Error.NONE
    assert send(0, 2, producer=4001)[0] != Error.NONE
    assert end_offset(client, topic) == 10
