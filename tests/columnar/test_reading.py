"""Whole topics as Arrow: what is read, from where to where, and what is said when it cannot be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import penstock.columnar
from penstock.columnar.decode import SCHEMA, SCHEMA_WITH_HEADERS
from penstock.columnar.errors import BrokerAway, ColumnarError, OffsetsGone, SettingError, TopicGone
from penstock.columnar.positions import Where
from penstock.testing.broker_process import free_port

from .producing_sites import DEADLINE_S, ProducingSite
from .topic_filling import delete_records, fill, make_anew, numbers, transaction

QUICK = {"default.api.timeout.ms": "700", "retry.backoff.ms": "20", "fetch.max.wait.ms": "50"}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def values(table: pa.Table) -> list[bytes | None]:
    column: list[bytes | None] = table.column("value").to_pylist()
    return column


def test_columns_are_those_of_spark(site: ProducingSite) -> None:
    topic = site.new_topic()
    producer = Producer({"bootstrap.servers": site.bootstrap})
    producer.produce(topic, b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp=1_700_000_000_123)
    producer.produce(topic, None, key=None, timestamp=1_700_000_000_124)
    producer.produce(topic, b"", key=b"", timestamp=1_700_000_000_125)
    producer.flush(DEADLINE_S)
    table = penstock.columnar.read(site.bootstrap, topic, headers=True).read_all()
    assert table.schema == SCHEMA_WITH_HEADERS
    assert table.column("key").to_pylist() == [b"k", None, b""]
    assert values(table) == [b"v", None, b""]
    assert table.column("offset").to_pylist() == [0, 1, 2]
    assert table.column("timestamp").to_pylist()[0] == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert set(table.column("timestampType").to_pylist()) == {0}
    assert table.column("headers").to_pylist() == [
        [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
        None,
        None,
    ]
    assert penstock.columnar.read(site.bootstrap, topic).schema == SCHEMA


def test_columns_can_be_chosen(site: ProducingSite) -> None:
    topic = site.new_topic(3)
    for partition in range(3):
        fill(site.bootstrap, topic, numbers(0, 10), partition=partition)
    reader = penstock.columnar.read(site.bootstrap, topic, columns=["partition", "offset"])
    assert reader.schema.names == ["partition", "offset"]
    rows = reader.read_all().to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == [(p, o) for p in range(3) for o in range(10)]
    only = penstock.columnar.read(site.bootstrap, topic, partitions=[2], columns=["value", "partition"]).read_all()
    assert only.column("partition").to_pylist() == [2] * 10


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_bounded_and_nothing_is_missing(site: ProducingSite, codec: str) -> None:
    topic = site.new_topic()
    fill(site.bootstrap, topic, numbers(0, 5000), compression_type=codec, batch_size=4000)
    read = penstock.columnar.read(site.bootstrap, topic, rows_max=300, fetch_bytes=3000)
    batches = list(read)
    assert max(batch.num_rows for batch in batches) <= 300
    assert values(pa.Table.from_batches(batches)) == numbers(0, 5000)


def test_start_and_end(site: ProducingSite) -> None:
    topic = site.new_topic(2)
    producer = Producer({"bootstrap.servers": site.bootstrap})
    for number in range(10):
        when = NOON + timedelta(seconds=number)
        producer.produce(topic, b"%d" % number, partition=0, timestamp=int(when.timestamp() * 1000))
    producer.flush(DEADLINE_S)

    def read(**where: Where) -> list[bytes | None]:
        return values(penstock.columnar.read(site.bootstrap, topic, **where).read_all())

    assert read(start={0: 3}, end={0: 6}) == numbers(3, 6)
    assert read(start="latest") == []
    assert read(start={0: 7}) == numbers(7, 10)
    assert read(end={0: 2, 1: "latest"}) == numbers(0, 2)
    assert read(start=NOON + timedelta(seconds=4)) == numbers(4, 10)
    assert read(start=NOON + timedelta(seconds=4), end=NOON + timedelta(seconds=6)) == numbers(4, 6)
    assert read(start=NOON + timedelta(milliseconds=3_001)) == numbers(4, 10)
    assert read(start=NOON + timedelta(days=1)) == []
    assert read(start={0: -1}) == []
    assert read(start={0: -2}) == numbers(0, 10)
    assert read(start={0: 6}, end={0: 3}) == []


def test_only_what_is_committed(site: ProducingSite) -> None:
    topic = site.new_topic()
    fill(site.bootstrap, topic, numbers(0, 5))
    with transaction(site.bootstrap) as aborted:
        for value in numbers(100, 105):
            aborted.produce(topic, value, partition=0)
        aborted.flush(DEADLINE_S)
        aborted.abort_transaction(DEADLINE_S)
    with transaction(site.bootstrap) as committed:
        for value in numbers(5, 10):
            committed.produce(topic, value, partition=0)
        committed.commit_transaction(DEADLINE_S)
    with transaction(site.bootstrap) as left_open:
        for value in numbers(200, 205):
            left_open.produce(topic, value, partition=0)
        left_open.flush(DEADLINE_S)
        fill(site.bootstrap, topic, numbers(300, 301))
        table = penstock.columnar.read(site.bootstrap, topic).read_all()
        assert values(table) == numbers(0, 10)
        assert table.column("offset").to_pylist()[-1] == 15  # five aborted and a marker lie before
        everything = penstock.columnar.read(site.bootstrap, topic, isolation="read_uncommitted").read_all()
        expected = [*numbers(0, 5), *numbers(100, 105), *numbers(5, 10), *numbers(200, 205), *numbers(300, 301)]
        assert values(everything) == expected
        left_open.commit_transaction(DEADLINE_S)


def test_an_empty_topic_has_no_rows(site: ProducingSite) -> None:
    table = penstock.columnar.read(site.bootstrap, site.new_topic(2)).read_all()
    assert table.num_rows == 0
    assert table.schema == SCHEMA


def test_several_topics(site: ProducingSite) -> None:
    topics = [site.new_topic(), site.new_topic()]
    for topic in topics:
        fill(site.bootstrap, topic, numbers(0, 3))
    assert penstock.columnar.read(site.bootstrap, topics).read_all().column("topic").to_pylist() == sorted(
        topics * 3, key=topics.index
    )


def test_what_cannot_be_read_is_said_at_once(site: ProducingSite) -> None:
    topic = site.new_topic()
    fill(site.bootstrap, topic, numbers(0, 5))

    def refused(kind: type[Exception], text: str, name: str = topic, **options: object) -> None:
        with pytest.raises(kind, match=text):
            penstock.columnar.read(site.bootstrap, name, **options)  # type: ignore[arg-type]

    refused(TopicGone, "topic no-such: it does not exist", name="no-such")
    refused(OffsetsGone, f"{topic}, partition 0: offset 7 .* from 0 up to 5", start={0: 7})
    refused(OffsetsGone, "offset 6", end={0: 6})
    refused(ColumnarError, "no partition 1", start={1: 0})
    refused(ColumnarError, "start: 'first' is not a place", start="first")
    refused(ColumnarError, "has no time zone", start=datetime(2026, 1, 1))
    refused(ColumnarError, "no column 'values'; did you mean 'value'", columns=["values"])
    refused(ColumnarError, "has 1 of them", partitions=[1])
    refused(SettingError, "isolation: is read_committed or", isolation="dirty")
    refused(SettingError, "did you mean", settings={"fetch.max.waitms": "1"})


def test_nobody_there(site: ProducingSite) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerAway, match=rf"look up orders .*tried {address}; the last reason: {address}: .*refused"):
        penstock.columnar.read(address, "orders", settings=QUICK)


def test_records_that_were_deleted(site: ProducingSite) -> None:
    """The range was there when it was planned, and is not when it is read: the error comes out of the iteration."""
    topic = site.new_topic()
    fill(site.bootstrap, topic, numbers(0, 5))
    reader = penstock.columnar.read(site.bootstrap, topic)
    delete_records(site.bootstrap, topic, 3)
    with pytest.raises(OffsetsGone, match="offset 0 is not there; the partition has offsets from 3 up to 5"):
        reader.read_all()


def test_a_topic_made_anew_is_another_one(site: ProducingSite) -> None:
    topic = site.new_topic()
    fill(site.bootstrap, topic, numbers(0, 5))
    reader = penstock.columnar.read(site.bootstrap, topic, settings={"default.api.timeout.ms": "20000"})
    site.delete_topic(topic)
    make_anew(site.bootstrap, topic)
    fill(site.bootstrap, topic, numbers(10, 20))
    with pytest.raises(TopicGone, match="made anew"):
        reader.read_all()


def test_a_deleted_topic_is_gone(site: ProducingSite) -> None:
    topic = site.new_topic()
    fill(site.bootstrap, topic, numbers(0, 5))
    reader = penstock.columnar.read(site.bootstrap, topic)
    site.delete_topic(topic)
    with pytest.raises(TopicGone, match=f"topic {topic}"):
        reader.read_all()
