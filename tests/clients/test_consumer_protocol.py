"""librdkafka with `group.protocol=consumer`: the new group protocol with a real client, and beside the classic one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from .client import DEFAULT_REPLICAS
from .conftest import ON_CLUSTER
from .sites import PENSTOCK, Site, site

pytestmark = pytest.mark.clients

PATIENCE_S = 30
QUICK = {
    "offsets.topic.num.partitions": "3",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "1000",
}


@pytest.fixture(scope="module", params=[PENSTOCK, ON_CLUSTER])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all of these tests, or a cluster of which one broker is killed."""
    with site(request.param, tmp_path_factory.mktemp("site"), QUICK) as started:
        yield started


@pytest.fixture
def house(broker: Site) -> Iterator[House]:
    made = House(broker.bootstrap)
    yield made
    made.close()


class Reader:
    """A consumer, with what it was given and what it has read."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: Any) -> None:
        self.read: list[tuple[str, int, int]] = []
        self.owned: set[tuple[str, int]] = set()
        self.rebalances = 0
        self.is_open = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log.connection.close": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += bool(partitions)
        self.owned |= {(each.topic, each.partition) for each in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with suppress(*(() if self.is_open else (KafkaException,))):  # one that leaves may have been thrown out before
            self.commit(consumer)
        self.owned -= {(each.topic, each.partition) for each in partitions}

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {(each.topic, each.partition) for each in partitions}

    def commit(self, consumer: Consumer | None = None) -> None:
        """What it has read, of what it still has."""
        ends: dict[tuple[str, int], int] = {}
        for topic, partition, offset in self.read:
            if (topic, partition) in self.owned:
                ends[topic, partition] = offset + 1
        if ends:
            offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
            (consumer or self._consumer).commit(offsets=offsets, asynchronous=False)

    def poll(self) -> None:
        for message in self._consumer.consume(50, 0.02):
            error = message.error()
            if error is None:
                where = (message.topic() or "", message.partition() or 0)
                assert where in self.owned
                self.read.append((*where, message.offset() or 0))
            else:
                assert error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN) or error.retriable(), error

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._consumer.close()


class House:
    """Topics and readers of one test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"x{uuid4().hex[:10]}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap, "log.connection.close": False})
        self._readers: list[Reader] = []

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def topic(self, suffix: str, partitions: int) -> str:
        name = f"{self.name}-{suffix}"
        for future in self.admin.create_topics([NewTopic(name, partitions, DEFAULT_REPLICAS)]).values():
            future.result()
        return name

    def produce(self, topic: str, partitions: int, count: int) -> set[tuple[str, int, int]]:
        """So many messages to each partition; where they are."""
        written: set[tuple[str, int, int]] = set()
        for number in range(partitions * count):
            self._producer.produce(
                topic,
                str(number).encode(),
                partition=number % partitions,
                on_delivery=lambda _error, message: written.add(
                    (message.topic(), message.partition(), message.offset())
                ),
            )
        self._producer.flush()
        return written

    def reader(self, *topics: str, group: str = "", **settings: Any) -> Reader:
        reader = Reader(self.bootstrap, group or self.name, list(topics), **settings)
        self._readers.append(reader)
        return reader

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Let all readers read until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"not after {PATIENCE_S} s: {what}"
            for reader in self._readers:
                if reader.is_open:
                    reader.poll()

    def state(self) -> Any:
        described: Any = self.admin.describe_consumer_groups([self.name])[self.name].result()
        return described


def sizes(*readers: Reader) -> list[int]:
    return sorted(len(reader.owned) for reader in readers)


def test_one_member_reads_everything_and_goes_on_where_it_was(house: House) -> None:
    topic = house.topic("t", 3)
    written = house.produce(topic, 3, 40)
    reader = house.reader(topic)
    house.until(lambda: len(reader.read) == 120, "everything is read")
    assert set(reader.read) == written
    reader.commit()
    reader.close()
    more = house.produce(topic, 3, 10)
    again = house.reader(topic)
    house.until(lambda: len(again.read) == 30, "the new messages are read")
    assert set(again.read) == more


def test_members_share_and_take_over(house: House) -> None:
    topic = house.topic("t", 6)
    first = house.reader(topic)
    house.until(lambda: len(first.owned) == 6, "the first has everything")
    second = house.reader(topic)
    house.until(lambda: sizes(first, second) == [3, 3], "two share")
    third = house.reader(topic, group_remote_assignor="uniform")
    house.until(lambda: sizes(first, second, third) == [2, 2, 2], "three share")
    assert not first.owned & second.owned and not first.owned & third.owned and not second.owned & third.owned
    described = house.state()
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert {len(member.assignment.topic_partitions) for member in described.members} == {2}
    written = house.produce(topic, 6, 20)
    readers = (first, second, third)
    house.until(lambda: sum(len(reader.read) for reader in readers) >= 120, "everything is read")
    read = [place for reader in readers for place in reader.read]
    assert len(read) == 120 and set(read) == written, "each by its one owner"
    second.close()
    house.until(lambda: sizes(first, third) == [3, 3], "the others take over")


def test_a_pattern_and_topics_that_come_and_grow(house: House) -> None:
    one = house.topic("a1", 1)
    house.topic("b1", 1)
    reader = house.reader(f"^{house.name}-a.*")
    house.until(lambda: reader.owned == {(one, 0)}, "it has the topic that is there")
    two = house.topic("a2", 2)
    house.until(lambda: len(reader.owned) == 3, "it has the topic that came")
    for future in house.admin.create_partitions([NewPartitions(one, 3)]).values():
        future.result()
    house.until(lambda: len(reader.owned) == 5, "it has the partitions that came")
    for future in house.admin.delete_topics([two]).values():
        future.result()
    house.until(lambda: reader.owned == {(one, 0), (one, 1), (one, 2)}, "it has given up what is gone")


def test_a_static_member_comes_back_and_nobody_notices(house: House) -> None:
    topic = house.topic("t", 4)
    static = house.reader(topic, group_instance_id="one")
    other = house.reader(topic, group_instance_id="two")
    house.until(lambda: sizes(static, other) == [2, 2], "two share")
    had, rebalances = set(static.owned), other.rebalances
    static.close()
    back = house.reader(topic, group_instance_id="one")
    house.until(lambda: back.owned == had, "it has what it had")
    assert other.rebalances == rebalances


def test_the_broker_is_killed_and_comes_back(house: House, broker: Site) -> None:
    topic = house.topic("t", 4)
    first, second = house.reader(topic), house.reader(topic)
    house.until(lambda: sizes(first, second) == [2, 2], "two share")
    before = house.produce(topic, 4, 10)
    house.until(lambda: len(first.read) + len(second.read) == 40, "everything is read")
    first.commit()
    second.commit()
    broker.kill()
    broker.start()
    after = house.produce(topic, 4, 10)
    house.until(lambda: len(first.read) + len(second.read) >= 80, "everything is read")
    read = first.read + second.read
    assert set(read) == before | after
    assert not first.owned & second.owned


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_from_the_classic_protocol_and_back(house: House, strategy: str) -> None:
    topic = house.topic("t", 4)
    classic = {"group_protocol": "classic", "partition_assignment_strategy": strategy, "heartbeat_interval_ms": 100}
    old = [house.reader(topic, session_timeout_ms=6000, **classic) for _ in range(2)]
    house.until(lambda: sizes(*old) == [2, 2], "the classic members share")
    assert house.state().type == ConsumerGroupType.CLASSIC
    new = [house.reader(topic) for _ in range(2)]
    house.until(lambda: sizes(*old, *new) == [1, 1, 1, 1], "all share")
    assert house.state().type == ConsumerGroupType.CONSUMER
    written = house.produce(topic, 4, 20)
    everybody = (*old, *new)
    house.until(lambda: sum(len(reader.read) for reader in everybody) >= 80, "everything is read")
    assert {place for reader in everybody for place in reader.read} == written
    for reader in new:
        reader.close()
    house.until(lambda: sizes(*old) == [2, 2], "the classic members share again")
    assert house.state().type == ConsumerGroupType.CLASSIC


def test_a_pattern_that_the_broker_refuses_is_an_error_that_the_user_sees(house: House) -> None:
    """librdkafka checks patterns by its own rules, which allow more than RE2 does."""
    reader = house.reader(r"^(a)\1")
    seen: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while not seen:
        assert time.monotonic() < deadline
        try:
            reader.poll()
        except AssertionError as error:
            seen.append(str(error))
    assert "regular expression" in seen[0].lower()
