"""Streams through a real Spark session against a real broker: positions, limits, triggers, losses, lag."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.testing.broker_process import BrokerProcess

from .conftest import BROKER_SETTINGS, create_topic
from .filled_topics import (
    Message,
    add_partitions,
    delete_records,
    delete_topic,
    fill,
    fill_transaction,
    make_topic,
)

pytestmark = pytest.mark.spark

WAIT_S_MAX = 60.0

MakeTopic = Callable[..., str]


class Stream:
    """A query that writes what it reads to Parquet, with its checkpoint; it can be run again."""

    def __init__(self, spark: Any, bootstrap: str, folder: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self.options = options
        self.output, self.checkpoint = folder / "rows", folder / "checkpoint"
        self.query: Any = None

    def start(self, **trigger: Any) -> Any:
        reader = self._spark.readStream.format("penstock").option("kafka.bootstrap.servers", self._bootstrap)
        writer = reader.options(**self.options).load().writeStream.format("parquet").option("path", str(self.output))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        self.query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()
        return self.query

    def run_available(self) -> list[Any]:
        """Read what there is, and end; returns the progress of the batches with rows."""
        self.start(availableNow=True)
        self.query.awaitTermination(WAIT_S_MAX)
        assert not self.query.isActive
        return [each for each in self.query.recentProgress if each["numInputRows"]]

    def rows(self) -> list[Any]:
        columns = "topic string, partition int, offset long, value binary"
        return sorted(self._spark.read.schema(columns).parquet(str(self.output)).collect())

    def values(self) -> list[bytes]:
        return [bytes(row.value) for row in self.rows()]

    def wait_for(self, count: int) -> None:
        """Until so many rows are there, or the query has failed."""
        deadline_s = time.monotonic() + WAIT_S_MAX
        while not self.output.exists() or len(self.rows()) < count:
            if (failure := self.query.exception()) is not None:
                raise failure
            assert time.monotonic() < deadline_s, f"{len(self.rows())} of {count} rows"
            time.sleep(0.05)

    def failure(self) -> str:
        """What the query says when it fails."""
        with pytest.raises(Exception) as raised:
            self.query.awaitTermination(WAIT_S_MAX)
            raise AssertionError("it goes on")
        return str(raised.value)

    def offsets(self, batch: int) -> dict[str, dict[str, int]]:
        """What the checkpoint has of a batch."""
        positions: dict[str, dict[str, int]] = json.loads(
            (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]
        )
        return positions


@pytest.fixture
def stream(spark: Any, broker: BrokerProcess, tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    """Makes a stream of a topic, from the beginning unless told otherwise; `_` in names stands for a dot."""
    made: list[Stream] = []

    def make(topic: str | None, **options: str) -> Stream:
        named = {"startingOffsets": "earliest", **{name.replace("_", "."): value for name, value in options.items()}}
        if topic is not None:
            named["subscribe"] = topic
        made.append(Stream(spark, broker.bootstrap, tmp_path / uuid4().hex, named))
        return made[-1]

    yield make
    for each in made:
        if each.query is not None:
            each.query.stop()


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%05d" % number for number in range(start, start + count)]


def in_partition(partition: int, values: list[bytes]) -> list[Message]:
    return [Message(value, partition=partition) for value in values]


# ── positions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_query_goes_on_from_its_checkpoint(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    query = stream(topic)
    fill(broker.bootstrap, topic, [*in_partition(0, numbers(5)), *in_partition(1, numbers(3))])
    query.run_available()
    assert len(query.rows()) == 8
    assert query.offsets(0) == {topic: {"0": 5, "1": 3}}
    fill(broker.bootstrap, topic, in_partition(1, numbers(4, 3)))
    query.run_available()
    assert [(row.partition, row.offset) for row in query.rows()] == [(0, n) for n in range(5)] + [
        (1, n) for n in range(7)
    ]
    assert query.run_available() == []


def test_a_query_begins_with_what_is_new(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(3))
    query = stream(topic)
    del query.options["startingOffsets"]
    query.start()
    _wait(lambda: (query.checkpoint / "commits" / "0").exists())
    assert query.offsets(0) == {topic: {"0": 3}}, "the first batch is empty, and says where the query began"
    fill(broker.bootstrap, topic, numbers(2, 3))
    query.wait_for(2)
    assert query.values() == numbers(2, 3)


def test_a_first_batch_that_died_is_made_good(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(3))
    query = stream(topic, startingOffsets="latest")
    query.start()
    _wait(lambda: (query.checkpoint / "commits" / "0").exists())
    query.query.stop()
    for name in ("0", ".0.crc"):
        (query.checkpoint / "commits" / name).unlink(missing_ok=True)
    fill(broker.bootstrap, topic, numbers(2, 3))
    query.run_available()
    assert query.values() == numbers(2, 3)


def test_a_batch_that_died_is_run_again_as_it_was(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(10))
    query = stream(topic, maxOffsetsPerTrigger="4")
    query.run_available()
    last = max(int(path.name) for path in (query.checkpoint / "commits").iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (query.checkpoint / "commits" / name).unlink(missing_ok=True)
    fill(broker.bootstrap, topic, numbers(2, 10))
    query.run_available()
    assert query.values() == numbers(12)


def test_offsets_and_times_to_begin_at(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2, settings={"retention.ms": "-1"})
    fill(broker.bootstrap, topic, [Message(b"%d" % n, partition=n % 2, timestamp_ms=1_000_000 + n) for n in range(10)])
    by_offset = stream(topic, startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}))
    by_offset.run_available()
    assert by_offset.values() == [b"6", b"8", b"1", b"3", b"5", b"7", b"9"]
    by_time = stream(topic, startingTimestamp="1000007")
    by_time.run_available()
    assert by_time.values() == [b"8", b"7", b"9"]
    too_late = stream(topic, startingTimestamp="1000009")
    too_late.start()
    assert "startingTimestamp" in too_late.failure()


# ── limits and triggers ──────────────────────────────────────────────────────────────────────────────────────────────


def test_limits_by_offsets(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    fill(broker.bootstrap, topic, [*in_partition(0, numbers(90)), *in_partition(1, numbers(10))])
    query = stream(topic, maxOffsetsPerTrigger="40")
    batches = query.run_available()
    assert [each["numInputRows"] for each in batches] == [40, 40, 20]
    assert query.offsets(0) == {topic: {"0": 36, "1": 4}}
    assert len(query.rows()) == 100


def test_limits_by_bytes(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, [b"x" * 10_000] * 100)
    batches = stream(topic, maxBytesPerTrigger="300000").run_available()
    sizes = [each["numInputRows"] for each in batches]
    assert sum(sizes) == 100
    assert 25 <= sizes[0] <= 30, "a little less than 30, for what else a row has"


def test_waiting_for_enough(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(5))
    query = stream(topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    query.start()
    query.wait_for(5)
    for number in range(10):
        fill(broker.bootstrap, topic, numbers(1, 5 + number))
    query.wait_for(15)
    assert query.offsets(1) == {topic: {"0": 15}}, "all ten in one batch"


def test_available_now_is_not_held_up_by_a_minimum(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(7))
    query = stream(topic, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    query.run_available()
    assert query.values() == numbers(7)


def test_once_takes_all(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(7))
    query = stream(topic, maxOffsetsPerTrigger="2")
    query.start(once=True).awaitTermination(WAIT_S_MAX)
    assert query.values() == numbers(7)


def test_ranges_are_split(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(100))
    query = stream(topic, minPartitions="4")
    query.run_available()
    assert len(list(query.output.glob("*.parquet"))) == 4
    assert query.values() == numbers(100)


# ── topics that change ───────────────────────────────────────────────────────────────────────────────────────────────


def test_new_partitions_are_read_from_their_beginning(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    query = stream(topic)
    fill(broker.bootstrap, topic, numbers(2))
    query.start()
    query.wait_for(2)
    add_partitions(broker.bootstrap, topic, 3)
    fill(broker.bootstrap, topic, [*in_partition(1, numbers(3)), *in_partition(2, numbers(4))])
    query.wait_for(9)
    assert [(row.partition, row.offset) for row in query.rows()][2:] == [(1, n) for n in range(3)] + [
        (2, n) for n in range(4)
    ]


def test_new_topics_of_a_pattern(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    prefix = f"pattern-{uuid4().hex[:8]}"
    query = stream(None, subscribePattern=f"{prefix}-.*")
    query.start()
    _wait(lambda: (query.checkpoint / "commits" / "0").exists())
    for number in range(2):
        make_topic(broker.bootstrap, f"{prefix}-{number}")
        fill(broker.bootstrap, f"{prefix}-{number}", numbers(3))
        query.wait_for(3 * (number + 1))


def test_a_topic_made_anew_is_noticed(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(3))
    query = stream(topic, fetchOffset_retryIntervalMs="10")
    query.start()
    query.wait_for(3)
    delete_topic(broker.bootstrap, topic)
    text = query.failure()
    assert f"topic {topic} " in text and "failOnDataLoss" in text
    make_topic(broker.bootstrap, topic)
    fill(broker.bootstrap, topic, numbers(2))
    query.start()
    assert f"{topic}-0 was read up to offset 3 and now ends at 2" in query.failure()


def test_records_that_were_deleted(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(5))
    query = stream(topic)
    query.run_available()
    fill(broker.bootstrap, topic, numbers(5, 5))
    delete_records(broker.bootstrap, topic, before=8)
    query.start(availableNow=True)
    text = query.failure()
    assert f"{topic}-0 begins at offset 8 now: offsets 5 to 7 were deleted" in text
    query.options["failOnDataLoss"] = "false"
    query.run_available()
    assert query.values() == [*numbers(5), *numbers(2, 8)]


def test_a_broker_that_was_away(spark: Any, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker" / "data", settings=BROKER_SETTINGS) as own_broker:
        topic = create_topic(own_broker.bootstrap)
        query = Stream(spark, own_broker.bootstrap, tmp_path, {"subscribe": topic, "startingOffsets": "earliest"})
        fill(own_broker.bootstrap, topic, numbers(3))
        query.start()
        try:
            query.wait_for(3)
            own_broker.kill()
            own_broker.start()
            fill(own_broker.bootstrap, topic, numbers(3, 3))
            query.wait_for(6)
        finally:
            query.query.stop()
    assert query.values() == numbers(6)


# ── transactions, lag, refusals ──────────────────────────────────────────────────────────────────────────────────────


def test_only_what_is_committed_and_nothing_is_waited_for(
    stream: Any, new_topic: MakeTopic, broker: BrokerProcess
) -> None:
    topic = new_topic()
    fill_transaction(broker.bootstrap, topic, [b"aborted"] * 3, f"{topic}-a", ending="abort")
    fill_transaction(broker.bootstrap, topic, [b"committed"], f"{topic}-b", ending="commit")
    left_open = fill_transaction(broker.bootstrap, topic, [b"open"], f"{topic}-c", ending="open")
    query = stream(topic)
    query.start()
    query.wait_for(1)
    left_open.commit_transaction(30)
    query.wait_for(2)
    assert query.values() == [b"committed", b"open"]


def test_the_group_follows_the_query(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    fill(broker.bootstrap, topic, [*in_partition(0, numbers(5)), *in_partition(1, numbers(3))])
    group = f"group-{topic}"
    query = stream(topic, kafka_group_id=group, commitOffsetsToGroup="true", maxOffsetsPerTrigger="4")
    query.run_available()
    assert _committed(broker, group, topic, 2) == [5, 3]


def test_progress_says_how_far_behind(stream: Any, new_topic: MakeTopic, broker: BrokerProcess) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, numbers(10))
    batches = stream(topic, maxOffsetsPerTrigger="4").run_available()
    (source,) = batches[0]["sources"]
    assert json.loads(source["endOffset"]) == {topic: {"0": 4}}
    assert json.loads(source["latestOffset"]) == {topic: {"0": 10}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, ["endingOffsets", "a stream has no end"]),
        ({"endingTimestamp": "5"}, ["endingTimestamp"]),
        ({"commitOffsetsToGroup": "true"}, ["kafka.group.id"]),
        ({"maxOffsetsPerTriger": "5"}, ["did you mean maxOffsetsPerTrigger?"]),
    ],
)
def test_refusals(stream: Any, new_topic: MakeTopic, options: dict[str, str], words: list[str]) -> None:
    query = stream(new_topic(), **options)
    with pytest.raises(Exception) as raised:
        query.start()
        query.query.awaitTermination(WAIT_S_MAX)
    assert all(word in str(raised.value) for word in words)


def test_a_topic_that_does_not_exist(stream: Any) -> None:
    query = stream("no-such-topic")
    query.start()
    assert "subscribe: topic no-such-topic does not exist" in query.failure()


def test_options_and_headers_in_a_stream(stream: Any, new_topic: MakeTopic, broker: BrokerProcess, spark: Any) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, [Message(b"v", b"k", headers=[("h", b"1")])])
    query = stream(topic, columns="headers,offset")
    query.run_available()
    (row,) = spark.read.parquet(str(query.output)).collect()
    assert (row.offset, row.headers[0].key, bytes(row.headers[0].value)) == (0, "h", b"1")


def _wait(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def _committed(broker: BrokerProcess, group: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], 30)
    consumer.close()
    return [place.offset for place in places]
