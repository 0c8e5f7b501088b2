"""The groups that Apache Kafka wrote into its `__consumer_offsets`, read by us: everything is as Kafka itself says."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.base.steps import StateRecord
from penstock.groups.records import OFFSETS_CODEC
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.table import TopicView
from penstock.wire.batch import each_batch
from penstock.wire.records import read_records

from .conftest import Brokers, Client

pytestmark = pytest.mark.kafka

GROUP = f"g{uuid.uuid4().hex[:10]}"


class KafkasTopics:
    """The topics of a Kafka cluster, as groups of ours see them."""

    def __init__(self, kafka: Client) -> None:
        answer = kafka.ask("Metadata", 13, topics=None, allow_auto_topic_creation=False)
        self._topics = {each.name: TopicView(each.name, each.topic_id, len(each.partitions)) for each in answer.topics}

    def named(self, name: str) -> TopicView | None:
        return self._topics.get(name)

    def with_id(self, topic_id: uuid.UUID) -> TopicView | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self._topics


@pytest.fixture
def kafka(kafka_address: tuple[str, int]) -> Iterator[Client]:
    """Asks Kafka alone."""
    client = Client(Brokers(kafka_address))
    yield client
    client.close()


def beat(kafka: Client, member_id: str, epoch: int, **fields: Any) -> Any:
    values = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, **fields}
    return kafka.ask(
        "ConsumerGroupHeartbeat", 1, is_patient=True, until=lambda answer: answer.error_code == Error.NONE, **values
    )


def records_of(kafka: Client, partition: int) -> Iterator[StateRecord]:
    """What is in a partition of `__consumer_offsets`."""
    topic_id = kafka.topic_id("__consumer_offsets")
    offset = 0
    while True:
        asked = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
        answer = kafka.ask(
            "Fetch",
            13,
            replica_id=-1,
            max_wait_ms=0,
            max_bytes=1 << 20,
            topics=[{"topic_id": topic_id, "partitions": asked}],
        )
        content = bytes(answer.responses[0].partitions[0].records or b"")
        if not content:
            return
        for header, batch in each_batch(memoryview(content)):
            offset = header.next_offset
            for record in read_records(batch):
                decoded = OFFSETS_CODEC.decode(record.key, record.value)
                if decoded is not None:
                    yield decoded


def test_a_consumer_group_that_kafka_wrote(kafka: Client) -> None:
    kafka.ask(
        "FindCoordinator",
        4,
        is_patient=True,
        until=lambda answer: answer.coordinators[0].error_code == Error.NONE,
        coordinator_keys=[GROUP],
        key_type=0,
    )
    name = f"{GROUP}-topic"
    topics = [{"name": name, "num_partitions": 4, "replication_factor": 1}]
    kafka.ask("CreateTopics", 7, topics=topics, timeout_ms=10_000)
    full = {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
    beat(kafka, "a", 0, subscribed_topic_names=[name], **full)
    beat(kafka, "b", 0, instance_id="i", rack_id="r", server_assignor="range", subscribed_topic_names=[name], **full)
    beat(kafka, "c", 0, subscribed_topic_names=[], subscribed_topic_regex=f"{GROUP}.*", **full)
    beat(kafka, "gone", 0, subscribed_topic_names=["other"], **full)
    beat(kafka, "gone", -1)
    shards = [GroupShard(GroupSettings(), uuid.uuid4, KafkasTopics(kafka)) for _ in range(2)]
    described = kafka.ask("ConsumerGroupDescribe", 1, group_ids=[GROUP]).groups[0]
    for partition, shard in enumerate(shards):
        for record in records_of(kafka, partition):
            shard.replay(record, None, 0)
    (ours,) = [
        shard.describe_consumer_group(0, GROUP).answers[0][1] for shard in shards if shard.table.get(GROUP) is not None
    ]
    assert sorted(member.member_id for member in described.members) == ["a", "b", "c"]
    assert in_order(ours) == in_order(described)


def in_order(group: Any) -> Any:
    """Kafka has members and topics in no particular order."""
    group.members.sort(key=lambda member: member.member_id)
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                topic.partitions.sort()
    return group
