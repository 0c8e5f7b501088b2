"""What this broker knows of the cluster: brokers, topics, settings, as last read from the znodes.

`/changes` is watched: its notices say which topics and settings to read again. A jump too big, a reconnect or a new
controller means reading everything again. Listeners are told after the view has changed; nothing else writes to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from penstock.controller.plan import ClusterState
from penstock.zookeeper.coordination import Coordination
from penstock.zookeeper.errors import NoNodeError
from penstock.zookeeper.operations import WatchEvent
from penstock.zookeeper.topic_znodes import Topic, TopicNode, TopicShard, shard_count, topic_of, topic_path
from penstock.zookeeper.znodes import (
    BROKER_IDS_PATH,
    CONFIG_PATH,
    CONFIG_TYPES,
    TOPICS_PATH,
    BrokerNode,
    Changes,
    ClusterNode,
    ConfigNode,
    ControllerNode,
    ZnodeFormatError,
)

logger = logging.getLogger(__name__)

TOPIC_READS_MAX = 5


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """The settings of one topic or broker, and the version of their znode."""

    values: dict[str, str]
    version: int


@dataclass(frozen=True, slots=True)
class ViewChange:
    """What was read anew: topics by name, settings as "topics/orders"; `is_everything` after a full read."""

    topics: frozenset[str]
    configs: frozenset[str]
    is_everything: bool = False


class ClusterView:
    """See the head of this file."""

    def __init__(self, coordination: Coordination) -> None:
        self.cluster_id = ""
        self.controller_id = -1
        self.brokers: dict[int, BrokerNode] = {}
        self.topics: dict[str, Topic] = {}
        self.configs: dict[str, StoredConfig] = {}
        self._topic_of_id: dict[UUID, str] = {}
        self._coordination = coordination
        self._changes = Changes()
        self._changes_version = -1
        self._lock = asyncio.Lock()
        self._listeners: list[Callable[[ViewChange], Awaitable[None]]] = []
        self._refreshing: set[asyncio.Task[None]] = set()

    def on_change(self, listener: Callable[[ViewChange], Awaitable[None]]) -> None:
        self._listeners.append(listener)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        name = self._topic_of_id.get(topic_id)
        return self.topics.get(name) if name is not None else None

    def config_values(self, config_type: str, name: str) -> dict[str, str]:
        stored = self.configs.get(f"{config_type}/{name}")
        return stored.values if stored is not None else {}

    def config_version(self, config_type: str, name: str) -> int | None:
        stored = self.configs.get(f"{config_type}/{name}")
        return stored.version if stored is not None else None

    def state(self, controller_epoch_version: int) -> ClusterState:
        """What the controller decides upon."""
        return ClusterState(
            controller_epoch_version, self._changes, self._changes_version, dict(self.brokers), self.topics
        )

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Read everything; at the start and whenever notices may have been missed."""
        async with self._lock:
            await self._read_all()

    async def refresh(self) -> None:
        """Take over what the notices say has changed."""
        async with self._lock:
            data, stat = await self._coordination.get(Changes.PATH)
            changes = Changes.decode(data)
            notices = changes.since(self._changes_version, stat.version)
            if notices is None:
                await self._read_all()
                return
            topics = {name for notice in notices for name in notice.topics or ()}
            configs = {name for notice in notices for name in notice.configs}
            for name in sorted(topics):
                await self._read_topic(name)
            for name in sorted(configs):
                await self._read_config(name)
            self._changes, self._changes_version = changes, stat.version  # not before: a failed read is made again
            if topics or configs:
                await self._tell(ViewChange(frozenset(topics), frozenset(configs)))

    async def read_members(self) -> None:
        """Read who lives and who is the controller."""
        ids, _ = await self._coordination.children(BROKER_IDS_PATH)
        brokers = {}
        for broker_id in ids:
            try:
                data, _ = await self._coordination.get(f"{BROKER_IDS_PATH}/{broker_id}")
            except NoNodeError:
                continue
            brokers[int(broker_id)] = BrokerNode.decode(data)
        self.brokers = dict(sorted(brokers.items()))
        try:
            data, _ = await self._coordination.get(ControllerNode.PATH)
            self.controller_id = ControllerNode.decode(data).broker_id
        except NoNodeError:
            self.controller_id = -1

    async def _read_all(self) -> None:
        get = self._coordination.get
        self.cluster_id = ClusterNode.decode((await get(ClusterNode.PATH))[0]).cluster_id
        data, stat = await get(Changes.PATH, self._changes_happened)
        self._changes, self._changes_version = Changes.decode(data), stat.version
        await self.read_members()
        before_topics, before_configs = set(self.topics), set(self.configs)
        names, _ = await self._coordination.children(TOPICS_PATH)
        for name in before_topics.union(names):
            await self._read_topic(name)
        for config_type in CONFIG_TYPES:
            entities, _ = await self._coordination.children(f"{CONFIG_PATH}/{config_type}")
            before_configs.update(f"{config_type}/{name}" for name in entities)
        for name in before_configs:
            await self._read_config(name)
        everything = frozenset(before_topics | set(self.topics))
        await self._tell(ViewChange(everything, frozenset(before_configs), is_everything=True))

    async def _read_topic(self, name: str) -> None:
        old = self.topics.get(name)
        topic = await read_topic(self._coordination, name)
        if old is not None and (topic is None or topic.topic_id != old.topic_id):
            self._topic_of_id.pop(old.topic_id, None)
        if topic is None:
            self.topics.pop(name, None)
        else:
            self.topics[name] = topic
            self._topic_of_id[topic.topic_id] = name

    async def _read_config(self, name: str) -> None:
        try:
            data, stat = await self._coordination.get(f"{CONFIG_PATH}/{name}")
        except NoNodeError:
            self.configs.pop(name, None)
        else:
            self.configs[name] = StoredConfig(ConfigNode.decode(data).values, stat.version)

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tell(self, change: ViewChange) -> None:
        for listener in self._listeners:
            await listener(change)

    def _changes_happened(self, _event: WatchEvent) -> None:
        task = asyncio.get_running_loop().create_task(self._watch_again())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _watch_again(self) -> None:
        try:
            await self._coordination.get(Changes.PATH, self._changes_happened)
            await self.refresh()
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("the changes of the cluster could not be read")


async def read_topic(coordination: Coordination, name: str) -> Topic | None:
    """One topic with all of its partitions, or None; read again if it changed between its znodes."""
    for attempt in range(TOPIC_READS_MAX):
        try:
            data, stat = await coordination.get(topic_path(name))
            node = TopicNode.decode(data)
            shards, versions = [], [stat.version]
            for shard in range(1, shard_count(node.partition_count)):
                data, stat = await coordination.get(topic_path(name, shard))
                shards.append(TopicShard.decode(data))
                versions.append(stat.version)
            return topic_of(name, node, shards, versions)
        except NoNodeError:
            if await coordination.exists(topic_path(name)) is None:
                return None
        except ZnodeFormatError:
            if attempt == TOPIC_READS_MAX - 1:
                raise
    return None


def sorted_topics(topics: Iterable[Topic]) -> list[Topic]:
    """In the order in which they are listed to clients."""
    return sorted(topics, key=lambda topic: topic.name)
