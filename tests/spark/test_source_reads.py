"""Batch reads through a real Spark session against a real broker: every column, option, refusal and rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess, free_port

from .conftest import create_topic
from .filled_topics import Message, delete_records, fill, fill_transaction

pytestmark = pytest.mark.spark

NOON_MS = 1_767_268_800_000
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

Read = Callable[..., Any]
MakeTopic = Callable[..., str]


@pytest.fixture
def new_topic(broker: BrokerProcess) -> MakeTopic:
    """Makes a topic that keeps messages however old they are."""
    return lambda settings=None, **options: create_topic(
        broker.bootstrap, settings={"retention.ms": "-1", **(settings or {})}, **options
    )


@pytest.fixture
def read(spark: Any, broker: BrokerProcess) -> Read:
    """A DataFrame of the topics; options by name, with `_` for a dot."""

    def load(topic: str | None = None, **options: str) -> Any:
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name.replace("_", "."), value)
        return reader.load()

    return load


def values(frame: Any) -> list[bytes]:
    rows = frame.select("partition", "offset", "value").collect()
    return [bytes(row.value) for row in sorted(rows, key=lambda row: (row.partition, row.offset))]


def numbered(count: int, partition: int = 0, start: int = 0) -> list[Message]:
    """Messages with their number as value, one second after the other."""
    return [
        Message(b"%d" % number, partition=partition, timestamp_ms=NOON_MS + 1000 * number)
        for number in range(start, start + count)
    ]


def refusal(action: Callable[[], object]) -> str:
    """What the user is told."""
    with pytest.raises(Exception) as raised:
        action()
    return str(raised.value)


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_schema_is_that_of_sparks_connector(read: Read, new_topic: MakeTopic) -> None:
    expected = (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    headers = ",headers:array<struct<key:string,value:binary>>>"
    topic = new_topic()
    assert read(topic).schema.simpleString() == expected
    assert read(topic, includeHeaders="true").schema.simpleString() == expected[:-1] + headers


def test_every_column_has_what_was_written(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    fill(
        broker.bootstrap,
        topic,
        [
            Message(b"v", b"k", 1, NOON_MS + 7, [("h", b"1"), ("h", None), ("é", b"")]),
            Message(None, b"k2", 1, NOON_MS),
            Message(b"", None, 1, NOON_MS),
        ],
    )
    first, second, third = read(topic, includeHeaders="true").orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"v")
    assert (first.topic, first.partition, first.offset, first.timestampType) == (topic, 1, 0, 0)
    assert first.timestamp.timestamp() * 1000 == NOON_MS + 7
    assert [(each.key, each.value and bytes(each.value)) for each in first.headers] == [
        ("h", b"1"),
        ("h", None),
        ("é", b""),
    ]
    assert (second.value, second.headers, second.offset) == (None, None, 1)
    assert (third.key, bytes(third.value)) == (None, b"")


def test_the_time_of_the_broker(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(settings={"message.timestamp.type": "LogAppendTime"})
    fill(broker.bootstrap, topic, numbered(2))
    rows = read(topic).collect()
    assert {row.timestampType for row in rows} == {1}
    assert all(row.timestamp.timestamp() * 1000 > NOON_MS for row in rows)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(read: Read, new_topic: MakeTopic, broker: BrokerProcess, compression: str) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbered(300), **{"compression.type": compression, "linger.ms": 50})
    assert values(read(topic)) == [b"%d" % number for number in range(300)]


def test_columns_that_are_not_named_are_not_there(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, [Message(b"v", b"k", headers=[("h", b"1")])])
    frame = read(topic, columns="offset,Value")
    assert frame.columns == ["value", "offset"]
    assert [(bytes(row.value), row.offset) for row in frame.collect()] == [(b"v", 0)]
    (row,) = read(topic, columns="headers,key").collect()
    assert (bytes(row.key), row.headers[0].key) == (b"k", "h")
    assert read(topic, columns="topic").count() == 1


def test_a_schema_of_ones_own_is_refused(spark: Any, broker: BrokerProcess, new_topic: MakeTopic) -> None:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = reader.option("subscribe", new_topic()).schema("value string")
    assert "schema of topics is fixed" in refusal(lambda: frame.load().collect())


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_several_topics(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    one, two = new_topic(), new_topic(partitions=3)
    fill(broker.bootstrap, one, numbered(3))
    fill(broker.bootstrap, two, [*numbered(4, 0), *numbered(2, 2)])
    counts = read(f"{one}, {two}").groupBy("topic", "partition").count().collect()
    assert {(row.topic, row.partition): row["count"] for row in counts} == {(one, 0): 3, (two, 0): 4, (two, 2): 2}


def test_a_pattern(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    one, two = new_topic(), new_topic()
    for topic in (one, two):
        fill(broker.bootstrap, topic, numbered(2))
    frame = read(subscribePattern=f"{one}|{two}.*|nothing-.*")
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {one, two}
    assert read(subscribePattern="nothing-.*").count() == 0
    assert read(subscribePattern=f"^(?!{one}).*{one[6:]}$").count() == 0


def test_a_pattern_does_not_mean_internal_topics(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill_transaction(broker.bootstrap, topic, [b"x"], f"{topic}-t", ending="commit")  # makes __transaction_state
    assert read(subscribePattern="__.*").count() == 0


def test_partitions_one_by_one(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=3)
    fill(broker.bootstrap, topic, [*numbered(2, 0), *numbered(2, 1), *numbered(2, 2)])
    frame = read(assign=json.dumps({topic: [0, 2]}))
    assert {row.partition for row in frame.collect()} == {0, 2}


def test_an_empty_topic(read: Read, new_topic: MakeTopic) -> None:
    assert read(new_topic(partitions=3)).collect() == []


# ── from where to where ──────────────────────────────────────────────────────────────────────────────────────────────


def test_offsets(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    fill(broker.bootstrap, topic, [*numbered(5, 0), *numbered(5, 1)])

    def offsets(first: int, second: int) -> str:
        return json.dumps({topic: {"0": first, "1": second}})

    frame = read(topic, startingOffsets=offsets(3, -2), endingOffsets=offsets(-1, 2))
    assert values(frame) == [b"3", b"4", b"0", b"1"]
    assert values(read(topic, startingOffsets="earliest", endingOffsets="latest")) == [b"0", b"1", b"2", b"3", b"4"] * 2
    assert read(topic, startingOffsets=offsets(5, 5)).count() == 0


def test_times(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    fill(broker.bootstrap, topic, [*numbered(5, 0), *numbered(3, 1)])
    second = str(NOON_MS + 2000)
    assert values(read(topic, startingTimestamp=second)) == [b"2", b"3", b"4", b"2"]
    assert values(read(topic, endingTimestamp=second)) == [b"0", b"1"] * 2
    by_partition = json.dumps({topic: {"0": NOON_MS + 3000, "1": NOON_MS}})
    assert values(read(topic, startingOffsetsByTimestamp=by_partition)) == [b"3", b"4", b"0", b"1", b"2"]
    assert values(read(topic, endingOffsetsByTimestamp=by_partition)) == [b"0", b"1", b"2"]


def test_a_time_that_is_too_late(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    fill(broker.bootstrap, topic, [*numbered(5, 0), *numbered(3, 1)])
    late = str(NOON_MS + 3000)
    text = refusal(lambda: read(topic, startingTimestamp=late).collect())
    assert "startingTimestamp" in text and f"{topic}-1" in text
    frame = read(topic, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert values(frame) == [b"3", b"4"]
    assert read(topic, endingTimestamp=late).count() == 6, "an end that is too late is the end"


def test_offsets_that_are_not_there(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbered(10))
    delete_records(broker.bootstrap, topic, before=4)
    assert len(values(read(topic))) == 6

    def offsets(offset: int) -> str:
        return json.dumps({topic: {"0": offset}})

    text = refusal(lambda: read(topic, startingOffsets=offsets(2)).collect())
    assert f"{topic}-0 begins at offset 4" in text and "failOnDataLoss" in text
    assert values(read(topic, startingOffsets=offsets(2), failOnDataLoss="false"))[0] == b"4"
    text = refusal(lambda: read(topic, endingOffsets=offsets(99)).collect())
    assert f"{topic}-0 ends at offset 10" in text
    assert len(values(read(topic, endingOffsets=offsets(99), failOnDataLoss="false"))) == 6
    text = refusal(lambda: read(topic, startingOffsets=offsets(8), endingOffsets=offsets(6)).collect())
    assert "endingOffsets" in text and "before its start" in text


def test_every_partition_must_be_named(read: Read, new_topic: MakeTopic) -> None:
    topic = new_topic(partitions=2)
    text = refusal(lambda: read(topic, startingOffsets=json.dumps({topic: {"0": 0}})).collect())
    assert "startingOffsets" in text and f"{topic}-1" in text


# ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_what_is_committed(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill_transaction(broker.bootstrap, topic, [b"aborted"] * 3, f"{topic}-a", ending="abort")
    fill_transaction(broker.bootstrap, topic, [b"committed"] * 2, f"{topic}-b", ending="commit")
    fill(broker.bootstrap, topic, [b"plain"])
    assert values(read(topic)) == [b"committed", b"committed", b"plain"]
    left_open = fill_transaction(broker.bootstrap, topic, [b"open"], f"{topic}-c", ending="open")
    fill(broker.bootstrap, topic, [b"behind the open one"])
    assert values(read(topic)) == [b"committed", b"committed", b"plain"], "it does not wait for the open one"
    everything = values(read(topic, kafka_isolation_level="read_uncommitted"))
    assert everything == [b"aborted"] * 3 + [b"committed"] * 2 + [b"plain", b"open", b"behind the open one"]
    left_open.abort_transaction(30)
    assert values(read(topic)) == [b"committed", b"committed", b"plain", b"behind the open one"]


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ranges_are_split(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    fill(broker.bootstrap, topic, [*numbered(100, 0), *numbered(10, 1)])
    for options, tasks in [({}, 2), ({"minPartitions": "5"}, 5), ({"maxRecordsPerPartition": "20"}, 6)]:
        frame = read(topic, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert values(frame) == [b"%d" % number for number in (*range(100), *range(10))]


def test_a_query_that_stops_early(read: Read, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, [b"x" * 1000] * 20_000)
    assert len(read(topic).limit(3).collect()) == 3
    assert read(topic).count() == 20_000


def test_sql(spark: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbered(5))
    options = f"`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe '{topic}'"
    spark.sql(f"create or replace temporary view numbers using penstock options ({options})")
    assert spark.sql("select sum(int(string(value))) as total from numbers where offset > 1").first().total == 9


# ── filters ──────────────────────────────────────────────────────────────────────────────────────────────────────────

FILTERS = [
    "topic = '{topic}' and partition = 1",
    "partition in (0, 2)",
    "partition <> 0 and offset >= 3",
    "offset = 4",
    "offset < 2 or offset > 3",
    "timestamp >= timestamp'2026-01-01 12:00:03'",
    "timestamp < timestamp'2026-01-01 12:00:03' and partition = 0",
    "timestamp between timestamp'2026-01-01 12:00:01' and timestamp'2026-01-01 12:00:02'",
    "topic like 'no-%'",
    "topic is null",
    "cast(value as string) = '2' and offset < 5 and key is null",
]


@pytest.fixture
def with_pushdown(spark: Any) -> Any:
    """Spark gives filters to Python sources only when it is told to."""
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "true")
    yield
    spark.conf.set(name, before)


def test_filters_choose_what_is_fetched(
    read: Read, new_topic: MakeTopic, broker: BrokerProcess, with_pushdown: None
) -> None:
    topic = new_topic(partitions=3)
    fill(broker.bootstrap, topic, [each for partition in range(3) for each in numbered(5, partition)])
    for condition in FILTERS:
        text = condition.replace("{topic}", topic)
        pushed = read(topic).where(text)
        plain = read(topic, pushdown="off").where(text)
        assert values(pushed) == values(plain), text
    assert read(topic).where("partition = 1").rdd.getNumPartitions() == 1
    assert read(topic, pushdown="off").where("partition = 1").rdd.getNumPartitions() == 3
    assert read(topic).where("timestamp > timestamp'2026-02-01'").rdd.getNumPartitions() == 1  # Spark's own empty one


def test_without_sparks_leave_filters_work_as_ever(
    spark: Any, read: Read, new_topic: MakeTopic, broker: BrokerProcess
) -> None:
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
    topic = new_topic()
    fill(broker.bootstrap, topic, numbered(5))
    assert values(read(topic).where("offset > 2")) == [b"3", b"4"]


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, ["startingoffset", "did you mean startingOffsets?"]),
        ({"startingOffsets": "latest"}, ["startingOffsets", "latest"]),
        ({"endingOffsets": "earliest"}, ["endingOffsets", "earliest"]),
        ({"startingOffsets": "{oops"}, ["startingOffsets", "expected JSON"]),
        ({"group_id": "g"}, ["group.id", "kafka.group.id"]),
        ({"kafka_auto_offset_reset": "earliest"}, ["auto.offset.reset", "startingOffsets"]),
        ({"kafka_enable_auto_commit": "true"}, ["enable.auto.commit"]),
        ({"kafka_value_deserializer": "x"}, ["value.deserializer"]),
        ({"kafka_ssl_truststore_password": "secret"}, ["kafka.ssl.truststore.password", "PEM"]),
        ({"kafka_sasl_mechanism": "GSSAPI", "kafka_security_protocol": "SASL_PLAINTEXT"}, ["sasl.mechanism"]),
        ({"subscribePattern": "a.*"}, ["exactly one"]),
    ],
)
def test_refusals_are_told_on_the_driver(
    read: Read, new_topic: MakeTopic, options: dict[str, str], words: list[str]
) -> None:
    topic = new_topic()
    text = refusal(lambda: read(topic, **options).collect())
    assert all(word in text for word in words), text


def test_a_topic_that_does_not_exist(read: Read) -> None:
    text = refusal(lambda: read("no-such-topic").collect())
    assert "subscribe: topic no-such-topic does not exist" in text


def test_a_partition_that_does_not_exist(read: Read, new_topic: MakeTopic) -> None:
    topic = new_topic()
    text = refusal(lambda: read(assign=json.dumps({topic: [0, 7]})).collect())
    assert f"assign: partition 7 of topic {topic} does not exist" in text


def test_no_broker(spark: Any) -> None:
    address = f"127.0.0.1:{free_port()}"
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", address).option("subscribe", "a")
    frame = reader.option("kafka.default.api.timeout.ms", "300").load()
    assert address in refusal(frame.collect)
