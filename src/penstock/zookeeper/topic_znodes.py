"""A topic and the state of its partitions, as it is kept in znodes: five hundred partitions to a znode.

`/brokers/topics/<name>` holds the id, the number of partitions and the state of the first five hundred;
`/brokers/topics/<name>/<n>` that of the n-th five hundred after them. Field names are short because there may be
thousands of partitions. Every partition has an epoch of its own that grows with each change: a reader ignores
an older (leader epoch, partition epoch), so the znodes of one topic need not be read at one moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from penstock.zookeeper.operations import Create, Delete, Operation, SetData
from penstock.zookeeper.znodes import TOPICS_PATH, Znode, ZnodeFormatError

PARTITIONS_PER_ZNODE = 500
NO_LEADER = -1


class PartitionState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds and who leads one partition. `isr` is in sync; `eligible` may lead if nobody of the ISR can."""

    replicas: tuple[int, ...] = msgspec.field(name="r")
    isr: tuple[int, ...] = msgspec.field(name="i")
    leader: int = msgspec.field(name="l", default=NO_LEADER)
    leader_epoch: int = msgspec.field(name="le", default=0)
    partition_epoch: int = msgspec.field(name="pe", default=0)
    eligible: tuple[int, ...] = msgspec.field(name="e", default=())
    adding: tuple[int, ...] = msgspec.field(name="a", default=())
    removing: tuple[int, ...] = msgspec.field(name="x", default=())


class TopicNode(Znode, frozen=True, kw_only=True):
    """The topic itself, with its first partitions."""

    topic_id: UUID
    partition_count: int
    partitions: tuple[PartitionState, ...]
    internal: bool = False


class TopicShard(Znode, frozen=True, kw_only=True):
    """The next five hundred partitions."""

    topic_id: UUID
    partitions: tuple[PartitionState, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A whole topic. `versions` are those of its znodes, in order; empty for one that is not written yet."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    versions: tuple[int, ...] = ()
    internal: bool = False


def topic_path(name: str, shard: int = 0) -> str:
    """The znode of a topic (0) or of its n-th further five hundred partitions."""
    return f"{TOPICS_PATH}/{name}" if shard == 0 else f"{TOPICS_PATH}/{name}/{shard}"


def shard_count(partition_count: int) -> int:
    """How many znodes a topic has."""
    return max(1, -(-partition_count // PARTITIONS_PER_ZNODE))


def topic_of(name: str, node: TopicNode, shards: Sequence[TopicShard], versions: Sequence[int]) -> Topic:
    """Put a topic together; ZnodeFormatError if they were read at different moments and do not fit: read again."""
    if any(shard.topic_id != node.topic_id for shard in shards):
        raise ZnodeFormatError(f"the znodes of topic {name} have different topic ids")
    partitions = node.partitions + tuple(state for shard in shards for state in shard.partitions)
    if len(partitions) != node.partition_count:
        raise ZnodeFormatError(f"topic {name} has {node.partition_count} partitions, but {len(partitions)} were found")
    return Topic(name, node.topic_id, partitions, tuple(versions), node.internal)


def znode_content(topic: Topic, shard: int) -> bytes:
    """The bytes of one of the topic's znodes."""
    first = shard * PARTITIONS_PER_ZNODE
    states = topic.partitions[first : first + PARTITIONS_PER_ZNODE]
    if shard:
        return TopicShard(topic_id=topic.topic_id, partitions=states).encode()
    return TopicNode(
        topic_id=topic.topic_id, partition_count=len(topic.partitions), partitions=states, internal=topic.internal
    ).encode()


def creation(topic: Topic) -> list[Operation]:
    """Write a new topic."""
    return [
        Create(topic_path(topic.name, n), znode_content(topic, n)) for n in range(shard_count(len(topic.partitions)))
    ]


def deletion(topic: Topic) -> list[Operation]:
    """Remove a topic, if it is still as it was read."""
    numbered = reversed(list(enumerate(topic.versions)))
    return [Delete(topic_path(topic.name, shard), version) for shard, version in numbered]


def update(before: Topic, after: Topic) -> list[Operation]:
    """Write what differs, if it is still as it was read. The number of partitions may have grown."""
    operations: list[Operation] = []
    for shard in range(shard_count(len(after.partitions))):
        content = znode_content(after, shard)
        if shard >= len(before.versions):
            operations.append(Create(topic_path(after.name, shard), content))
        elif content != znode_content(before, shard):
            operations.append(SetData(topic_path(after.name, shard), content, before.versions[shard]))
    return operations
