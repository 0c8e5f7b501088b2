"""What the bulk producer writes is what clients of another make read: rows, order, partitions, refusals."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.columnar.commit_many import is_offered
from penstock.columnar.connection import Connection, Pending
from penstock.columnar.errors import ColumnarError, NotAllowed, RecordTooLarge, Refused, SettingError, TopicGone
from penstock.columnar.lanes import Lane
from penstock.columnar.produce import BulkProducer
from penstock.columnar.sending import BatchTooLarge
from penstock.wire.api_declaration import Api

from .producing_sites import PENSTOCK, ProducingSite, numbered, texts

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOON_MS = 1_780_000_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_read_back_as_they_were(site: ProducingSite, codec: str) -> None:
    topic = site.new_topic(partitions=2)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"a", None, b"", b"d"], pa.binary()),
            "value": pa.array([b"one", b"", None, b"x" * 5000], pa.binary()),
            "partition": pa.array([0, 1, 0, 1], pa.int32()),
            "timestamp": pa.array([NOON_MS, NOON_MS + 5, NOON_MS - 60_000, NOON_MS + 1], pa.timestamp("ms", "UTC")),
            "headers": pa.array(
                [None, [{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], [{"key": "ä", "value": b""}]],
                HEADERS,
            ),
        }
    )
    with site.cluster() as cluster, BulkProducer(cluster, compression=codec) as producer:
        producer.write(topic, rows)
        producer.flush()
    assert site.read(topic) == [
        (0, 0, b"a", b"one", [], NOON_MS),
        (0, 1, b"", None, [], NOON_MS - 60_000),
        (1, 0, None, b"", [("h", b"1"), ("h", None)], NOON_MS + 5),
        (1, 1, b"d", b"x" * 5000, [("ä", b"")], NOON_MS + 1),
    ]


def test_rows_without_a_time_have_that_of_their_writing(site: ProducingSite) -> None:
    topic = site.new_topic()
    before_ms = int(time.time() * 1000)
    with site.cluster() as cluster, BulkProducer(cluster) as producer:
        producer.write(topic, numbered(0, 3))
        producer.flush()
    assert all(before_ms <= row.timestamp <= time.time() * 1000 for row in site.read(topic))


def test_keys_go_where_other_clients_send_them(site: ProducingSite) -> None:
    topic, other = site.new_topic(partitions=7), site.new_topic(partitions=7)
    keys = [b"", *(b"%d" % (number * 7919) for number in range(300)), bytes(range(256))]
    rows = pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "value": pa.array(keys, pa.binary())})
    with site.cluster() as cluster, BulkProducer(cluster) as producer:
        producer.write(topic, rows)
        producer.flush()
    theirs = Producer({"bootstrap.servers": site.bootstrap, "partitioner": "murmur2_random"})
    for key in keys[1:]:
        theirs.produce(other, key, key)
    theirs.flush()
    ours = {row.key: row.partition for row in site.read(topic)}
    assert {row.key: row.partition for row in site.read(other)}.items() <= ours.items()
    assert len(ours) == len(keys)


def test_rows_without_keys_are_spread(site: ProducingSite) -> None:
    topic = site.new_topic(partitions=4)
    with site.cluster() as cluster, BulkProducer(cluster, batch_bytes=2_000) as producer:
        producer.write(topic, numbered(0, 20_000))
        producer.flush()
        assert producer.partitions == 4
    assert sorted(site.values(topic), key=_number) == texts(range(20_000))


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_order_is_kept_in_every_partition(site: ProducingSite, codec: str) -> None:
    topic = site.new_topic(partitions=3)
    with site.cluster() as cluster, BulkProducer(cluster, batch_bytes=3_000, compression=codec) as producer:
        for first in range(0, 50_000, 1_000):
            numbers = range(first, first + 1_000)
            producer.write(topic, numbered(first, 1_000, key=pa.array([b"%d" % (each % 11) for each in numbers])))
        producer.flush()
        assert (producer.rows, producer.partitions) == (50_000, 3)
    found = defaultdict(list)
    for row in site.read(topic):
        found[row.partition].append(_number(row.value))
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sorted(chain.from_iterable(found.values())) == list(range(50_000))


def test_several_topics_at_once(site: ProducingSite) -> None:
    topics = [site.new_topic(partitions=2) for _ in range(3)]
    with site.cluster() as cluster, BulkProducer(cluster) as producer:
        for topic in topics:
            producer.write(topic, numbered(0, 10))
        producer.flush()
    assert all(sorted(site.values(topic), key=_number) == texts(range(10)) for topic in topics)


@pytest.mark.clients
def test_hundreds_of_partitions_share_requests(penstock_site: ProducingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = penstock_site.new_topic(partitions=300)
    requests = []
    send_parts = Connection.send_parts

    def counted(self: Connection, api: Api, *arguments: Any) -> Pending:
        requests.append(api.name)
        return send_parts(self, api, *arguments)

    monkeypatch.setattr(Connection, "send_parts", counted)
    with penstock_site.cluster() as cluster, BulkProducer(cluster) as producer:
        partitions = pa.array([number % 300 for number in range(900)], pa.int32())
        producer.write(topic, numbered(0, 900, partition=partitions))
        producer.flush()
        assert producer.partitions == 300
    assert requests.count("Produce") == 2
    assert [row.value for row in penstock_site.read(topic) if row.partition == 7] == texts([7, 307, 607])


def test_a_flush_may_be_followed_by_more(site: ProducingSite) -> None:
    topic = site.new_topic()
    with site.cluster() as cluster, BulkProducer(cluster) as producer:
        for first in range(10):
            producer.write(topic, numbered(first, 1))
            producer.flush()
        producer.flush()
    assert site.values(topic) == texts(range(10))


def test_what_is_on_its_way_is_bounded(site: ProducingSite) -> None:
    topic = site.new_topic(partitions=2)
    limit, batch_bytes = 300_000, 100_000
    with site.cluster() as cluster:
        producer = BulkProducer(cluster, batch_bytes=batch_bytes, unacknowledged_bytes_max=limit, compression="none")
        for first in range(0, 200_000, 20_000):
            producer.write(topic, numbered(first, 20_000))
            assert producer._sender.unacknowledged_bytes <= limit
        producer.flush()
    assert len(site.values(topic)) == 200_000


def test_a_large_row_has_a_batch_of_its_own(site: ProducingSite) -> None:
    topic = site.new_topic(max_message_bytes="400000")
    values = pa.array([b"small", b"L" * 300_000, b"small too"], pa.binary())
    with site.cluster() as cluster, BulkProducer(cluster, batch_bytes=1_000, compression="none") as producer:
        producer.write(topic, pa.RecordBatch.from_arrays([values], ["value"]))
        producer.flush()
    assert site.values(topic) == values.to_pylist()


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_row_that_is_too_large_is_named(site: ProducingSite, codec: str) -> None:
    topic = site.new_topic(max_message_bytes="10000")
    value = bytes(range(256)) * 4_000 if codec == "none" else numbered(0, 5_000).column(0).to_pylist()
    large = b"".join(value) if isinstance(value, list) else value
    rows = pa.RecordBatch.from_arrays([pa.array([b"small", large], pa.binary())], ["value"])
    with (
        site.cluster() as cluster,
        BulkProducer(cluster, compression=codec) as producer,
        pytest.raises(RecordTooLarge, match=topic) as caught,
    ):
        producer.write(topic, rows)
        producer.flush()
    assert re.search(r"\d{4,} bytes", str(caught.value))


@pytest.mark.clients
def test_a_broker_that_takes_less_than_it_told(penstock_site: ProducingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for one who may not look up a topic's settings."""
    topic = penstock_site.new_topic(max_message_bytes="10000")
    monkeypatch.setattr("penstock.columnar.produce.message_bytes_max", lambda _cluster, _topic: None)
    with penstock_site.cluster() as cluster, BulkProducer(cluster, compression="none") as producer:
        producer.write(topic, numbered(0, 5_000))
        with pytest.raises(BatchTooLarge, match=rf"{topic}, partition 0: a batch of \d+ bytes with 5000 rows"):
            producer.flush()


def test_batches_fit_a_topic_that_takes_little(site: ProducingSite) -> None:
    topic = site.new_topic(max_message_bytes="2000")
    with site.cluster() as cluster, BulkProducer(cluster) as producer:
        producer.write(topic, numbered(0, 5_000))
        producer.flush()
    assert site.values(topic) == texts(range(5_000))


def test_a_topic_that_does_not_exist_is_not_made(site: ProducingSite) -> None:
    with site.cluster() as cluster, BulkProducer(cluster) as producer:
        with pytest.raises(TopicGone, match="no-such-topic"):
            producer.write("no-such-topic", numbered(0, 1))
        assert "no-such-topic" not in cluster.topics()


def test_a_topic_that_goes_away_is_named(site: ProducingSite) -> None:
    topic = site.new_topic()
    with site.cluster() as cluster, BulkProducer(cluster) as producer:
        producer.write(topic, numbered(0, 1))
        producer.flush()
        site.delete_topic(topic)
        producer.write(topic, numbered(1, 1))
        with pytest.raises(TopicGone, match=topic):
            producer.flush()
        with pytest.raises(TopicGone, match=topic):
            producer.write(topic, numbered(2, 1))


@pytest.mark.clients
def test_what_may_pass_is_tried_until_the_delivery_timeout(
    penstock_site: ProducingSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = penstock_site.new_topic()
    monkeypatch.setattr("penstock.columnar.sending._error_in", lambda _row: ApiError(Error.NOT_ENOUGH_REPLICAS))
    with penstock_site.cluster(delivery_timeout_ms="700") as cluster, BulkProducer(cluster) as producer:
        producer.write(topic, numbered(0, 1))
        with pytest.raises(Refused, match=rf"{topic}, partition 0 within 0.7 s") as caught:
            producer.flush()
    assert caught.value.error is Error.NOT_ENOUGH_REPLICAS


@pytest.mark.clients
@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (Error.TOPIC_AUTHORIZATION_FAILED, NotAllowed, "may not"),
        (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Refused, "acknowledged are missing"),
        (Error.UNKNOWN_PRODUCER_ID, Refused, "forgotten this producer"),
        (Error.INVALID_TIMESTAMP, Refused, "too far"),
        (Error.MESSAGE_TOO_LARGE, BatchTooLarge, "max.message.bytes"),
    ],
)
def test_what_will_not_pass_is_told_at_once(
    penstock_site: ProducingSite, monkeypatch: pytest.MonkeyPatch, error: Error, kind: type[Exception], said: str
) -> None:
    topic = penstock_site.new_topic()
    monkeypatch.setattr("penstock.columnar.sending._error_in", lambda _row: ApiError(error))
    with penstock_site.cluster() as cluster, BulkProducer(cluster) as producer:
        producer.write(topic, numbered(0, 1))
        with pytest.raises(kind, match=said) as caught:
            producer.flush()
    assert f"{topic}, partition 0" in str(caught.value)


def test_sequences_wrap(site: ProducingSite) -> None:
    topic = site.new_topic()
    where = TopicPartition(topic, 0)
    with site.cluster() as cluster, BulkProducer(cluster, batch_bytes=500) as producer:
        producer._sender._lanes[where] = Lane(where, 0.1, 1.0, next_sequence=2**31 - 700)
        producer.write(topic, numbered(0, 2_000))
        producer.flush()
    assert site.values(topic) == texts(range(2_000))


def test_penstock_says_that_it_can_commit_many(site: ProducingSite, request: pytest.FixtureRequest) -> None:
    with site.cluster() as cluster:
        assert is_offered(cluster.any()) == (request.node.callspec.params["site"] == PENSTOCK)


@pytest.mark.clients
def test_settings_that_cannot_be(penstock_site: ProducingSite) -> None:
    with penstock_site.cluster() as cluster:
        with pytest.raises(SettingError, match="acks"):
            BulkProducer(cluster, acks=0)
        with pytest.raises(SettingError, match="acks"):
            BulkProducer(cluster, acks=1, transactional_id="t")
        with pytest.raises(SettingError, match=r"compression.type.*lz4"):
            BulkProducer(cluster, compression="lzma")
        with BulkProducer(cluster) as producer, pytest.raises(ColumnarError, match="transactional_id"):
            producer.begin()
        with pytest.raises(ColumnarError, match="closed"):
            producer.write("any", numbered(0, 1))


def _number(value: bytes | None) -> int:
    assert value is not None
    return int(value)
