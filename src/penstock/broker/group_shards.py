"""The consumer groups of this broker: their shards, with the world as they see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from penstock.base.settings import Settings
from penstock.base.world import World
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.lease import Lease
from penstock.broker.partitions import Partitions
from penstock.broker.state_log import Shape, StateLog
from penstock.broker.state_logs import StateLogs
from penstock.broker.topics import OFFSETS_TOPIC
from penstock.groups.records import OFFSETS_CODEC
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.table import TopicView
from penstock.wire.compression import Compression
from penstock.zookeeper.topic_znodes import Topic


class _Topics:
    """The cluster's topics, for groups."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def named(self, name: str) -> TopicView | None:
        topic = self._view.topics.get(name)
        return _seen(topic) if topic is not None else None

    def with_id(self, topic_id: UUID) -> TopicView | None:
        topic = self._view.topic_by_id(topic_id)
        return _seen(topic) if topic is not None else None

    def names(self) -> Iterable[str]:
        return self._view.topics


def _seen(topic: Topic) -> TopicView:
    return TopicView(topic.name, topic.topic_id, len(topic.partitions))


def group_shards(
    world: World,
    view: ClusterView,
    partitions: Partitions,
    lease: Lease,
    first_settings: Settings,
    settings: Callable[[], Settings],
) -> StateLogs[GroupShard]:
    """The groups of a broker that starts; `settings` gives those of now."""
    topics = _Topics(view)

    def new_uuid() -> UUID:
        return UUID(bytes=world.random.randbytes(16), version=4)

    def make_machine(_epoch: int) -> GroupShard:
        return GroupShard(GroupSettings.of(settings()), new_uuid, topics)

    def on_action(_log: StateLog[GroupShard], action: Any) -> None:
        raise TypeError(f"groups have no action {action!r}")

    compression = Compression(first_settings.integer("offsets.topic.compression.codec"))
    shape = Shape(OFFSETS_CODEC, make_machine, on_action, compression)
    return StateLogs(OFFSETS_TOPIC, shape, world, view, partitions, lease)


def tell_groups(groups: StateLogs[GroupShard], change: ViewChange, settings: Settings) -> None:
    """What groups depend on has changed: topics, or settings of this broker."""
    if any(name.startswith("brokers/") for name in change.configs):
        for log in groups:
            log.machine.use_settings(GroupSettings.of(settings))
    if change.topics:
        for log in groups:
            log.do(lambda machine, now: machine.topics_changed(change.topics, now))
