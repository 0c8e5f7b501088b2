"""AlterReplicaLogDirs and what DescribeLogDirs says of it, on a broker with two log directories: ours, or Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from penstock.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.records import Record, build_batch

WITHIN_S = 30
BATCHES = 20


class Place:
    """A broker with two log directories, and where they are."""

    def __init__(self, client: RawClient, first: Path, second: Path) -> None:
        self.client = client
        self.dirs = (str(first), str(second))

    def create(self, name: str) -> str:
        """A topic with one partition and some records; where it is."""
        topic = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
        assert self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == 0
        self.until(lambda: bool(self.where(name)))
        for number in range(BATCHES):
            batch = build_batch([Record(0, 1_700_000_000_000, b"k", b"%d" % number + bytes(1000))])
            part = ProduceRequestPartition(index=0, records=batch)
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[_produce(name, part)])
            assert self.client.call(request, 9).responses[0].partition_responses[0].error_code == 0
        return next(iter(self.where(name)))

    def move(self, path: str, name: str, *partitions: int) -> list[Error]:
        topics = [AlterReplicaLogDirsRequestTopic(name=name, partitions=list(partitions))]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequestDir(path=path, topics=topics)])
        (result,) = self.client.call(request, 2).results
        assert result.topic_name == name
        return [Error(part.error_code) for part in result.partitions]

    def where(self, name: str) -> dict[str, tuple[bool, int]]:
        """The directories that have a topic: whether as a future one, and the size."""
        answer = self.client.call(DescribeLogDirsRequest(topics=None), 1)
        return {
            directory.log_dir: (part.is_future_key, part.partition_size)
            for directory in answer.results
            for topic in directory.topics
            for part in topic.partitions
            if topic.name == name
        }

    def other(self, path: str) -> str:
        return self.dirs[self.dirs[0] == path]

    @staticmethod
    def until(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < deadline


def _produce(name: str, part: ProduceRequestPartition) -> ProduceRequestTopic:
    return ProduceRequestTopic(name=name, partition_data=[part])


@pytest.fixture(scope="module", params=["penstock", pytest.param("apache-kafka", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("dirs")
    first, second = folder / "first", folder / "second"
    settings = {"log.dirs": f"{first},{second}"}
    broker: Any
    if request.param == "penstock":
        broker = BrokerProcess(folder / "data", settings=settings)
    else:
        broker = ApacheKafka(request.getfixturevalue("kafka_libs"), folder / "kafka", settings=settings)
    with broker, RawClient(broker.host, broker.port) as client:
        yield Place(client, first, second)


def test_a_replica_moves_there_and_back(place: Place) -> None:
    home = place.create("moves")
    before = place.where("moves")
    size = before[home][1]
    for target in (place.other(home), home):
        assert place.move(target, "moves", 0) == [Error.NONE]
        place.until(lambda target=target: place.where("moves") == {target: (False, size)})  # type: ignore[misc]
    assert place.move(home, "moves", 0) == [Error.NONE], "where it is already"
    assert place.where("moves") == before


def test_what_cannot_be_moved(place: Place) -> None:
    home = place.create("stays")
    assert place.move("/no/such/place", "stays", 0) == [Error.LOG_DIR_NOT_FOUND]
    assert place.move(place.other(home), "stays", 7) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert place.move(place.other(home), "not-there-yet", 0) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert place.move(place.other(home), "x" * 240, 0) == [Error.INVALID_TOPIC_EXCEPTION]
    assert place.create("not-there-yet") == place.other(home), "where it was said before it was there"
