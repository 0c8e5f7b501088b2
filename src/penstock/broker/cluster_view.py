"""What this broker knows of the cluster: brokers, topics, settings, as last read from the znodes.

Four znodes are watched: `/changes`, whose notices say which topics and settings to read again, the registrations, the
admitted brokers and the controller. A watch only marks its part as stale; whatever is stale is read again, by a task in
the background or by whoever needs the newest (`refresh`). A jump too big or a new session means reading everything
again. Listeners are told after the view has changed; nothing else writes to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar
from uuid import UUID

from penstock.controller.plan import ClusterState
from penstock.zookeeper.coordination import Coordination, SessionState
from penstock.zookeeper.errors import CoordinationError, NoNodeError
from penstock.zookeeper.operations import WatchEvent
from penstock.zookeeper.topic_znodes import Topic, TopicNode, TopicShard, shard_count, topic_of, topic_path
from penstock.zookeeper.znodes import (
    BROKER_IDS_PATH,
    CONFIG_PATH,
    CONFIG_TYPES,
    TOPICS_PATH,
    AdmittedBrokers,
    BrokerNode,
    Changes,
    ClusterNode,
    ConfigNode,
    ControllerNode,
    ZnodeFormatError,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

TOPIC_READS_MAX = 5
RETRY_S = 0.05
READ_AT_ONCE_MAX = 500


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """The settings of one topic or broker, and the version of their znode."""

    values: dict[str, str]
    version: int


@dataclass(frozen=True, slots=True)
class ViewChange:
    """What was read anew: topics by name, settings as "topics/orders", and whether it was who lives and who leads."""

    topics: frozenset[str] = frozenset()
    configs: frozenset[str] = frozenset()
    members: bool = False


class _Part(Enum):
    """What is watched."""

    CHANGES = Changes.PATH
    REGISTRATIONS = BROKER_IDS_PATH
    ADMITTED = AdmittedBrokers.PATH
    CONTROLLER = ControllerNode.PATH


class ClusterView:
    """See the head of this file."""

    def __init__(self, coordination: Coordination) -> None:
        self.cluster_id = ""
        self.controller_id = -1
        self.controller_epoch = -1
        self.brokers: dict[int, BrokerNode] = {}
        self.broker_epochs: dict[int, int] = {}
        self.admitted = AdmittedBrokers()
        self.topics: dict[str, Topic] = {}
        self.configs: dict[str, StoredConfig] = {}
        self.changes_version = -1
        self._admitted_version: int | None = None
        self._topic_of_id: dict[UUID, str] = {}
        self._coordination = coordination
        self._session_id = 0
        self._changes = Changes()
        self._lock = asyncio.Lock()
        self._listeners: list[Callable[[ViewChange], Awaitable[None]]] = []
        self._stale: set[_Part] = set()
        self._news = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._reached: list[tuple[int, asyncio.Future[None]]] = []
        self._told_version = -1
        coordination.add_listener(self._session_changed)

    @property
    def session_id(self) -> int:
        """The session in which all of this was read; 0 if it is to be read again."""
        return self._session_id

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
            controller_epoch_version,
            self._changes,
            self.changes_version,
            dict(self.brokers),
            self.topics,
            dict(self.broker_epochs),
            self.admitted,
            self._admitted_version,
        )

    # ── following ────────────────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> None:
        """Read everything again."""
        async with self._lock:
            self._session_id = 0
            await self._catch_up()

    async def refresh(self) -> None:
        """Take over all that was written before this was called."""
        await self._coordination.sync()  # what is watched and has changed is known to be stale now
        async with self._lock:
            await self._catch_up()

    def start_following(self) -> None:
        """Keep up with the cluster from now on."""
        self._following = asyncio.get_running_loop().create_task(self._follow_forever())

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def reached(self, version: int) -> None:
        """Returns once everything up to a version of `/changes` has been read and listeners have been told."""
        if self._told_version < version:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reached.append((version, waiting))
            await waiting

    async def _follow_forever(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                async with self._lock:
                    await self._catch_up()
            except CoordinationError as error:
                logger.warning("the state of the cluster could not be read, and is read again: %s", error)
                await asyncio.sleep(RETRY_S)
                self._news.set()
            except Exception:
                logger.exception("the state of the cluster could not be taken over, and is read again")
                await asyncio.sleep(RETRY_S)
                self._news.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._news.set()

    def _watch(self, part: _Part) -> Callable[[WatchEvent], None]:
        session_id = self._session_id

        def changed(_event: WatchEvent) -> None:
            if session_id == self._session_id:
                self._stale.add(part)
                self._news.set()

        return changed

    async def _catch_up(self) -> None:
        """Read what is stale, or everything in a new session, and tell."""
        if self._session_id != self._coordination.session_id:
            self._stale.clear()
            session_id = self._session_id = self._coordination.session_id
            try:
                await self._read_all()
            except BaseException:
                if self._session_id == session_id:
                    self._session_id = 0
                raise
            return
        readers = {
            _Part.REGISTRATIONS: self._read_registrations,
            _Part.ADMITTED: self._read_admitted,
            _Part.CONTROLLER: self._read_controller,
        }
        stale = [part for part in readers if part in self._stale]
        for part in stale:
            await self._read_part(part, readers[part])
        change = ViewChange()
        if _Part.CHANGES in self._stale:
            change = await self._read_part(_Part.CHANGES, self._read_changes)
        await self._tell(ViewChange(change.topics, change.configs, members=bool(stale) or change.members))

    async def _read_part(self, part: _Part, read: Callable[[], Awaitable[T]]) -> T:
        self._stale.discard(part)
        try:
            return await read()
        except BaseException:
            self._stale.add(part)  # the watch may be there already, but what it watches is not known
            raise

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_all(self) -> None:
        get = self._coordination.get
        self.cluster_id = ClusterNode.decode((await get(ClusterNode.PATH))[0]).cluster_id
        await self._read_registrations()
        await self._read_admitted()
        await self._read_controller()
        data, stat = await get(Changes.PATH, self._watch(_Part.CHANGES))
        everything = await self._read_topics_and_configs()
        self._changes, self.changes_version = Changes.decode(data), stat.version
        await self._tell(everything)

    async def _read_topics_and_configs(self) -> ViewChange:
        topics, configs = set(self.topics), set(self.configs)
        names, _ = await self._coordination.children(TOPICS_PATH)
        topics.update(names)
        for config_type in CONFIG_TYPES:
            try:
                entities, _ = await self._coordination.children(f"{CONFIG_PATH}/{config_type}")
            except NoNodeError:
                continue  # a tree that an older release made: there are none of this type
            configs.update(f"{config_type}/{name}" for name in entities)
        await _at_once(self._read_topic, sorted(topics))
        await _at_once(self._read_config, sorted(configs))
        return ViewChange(frozenset(topics), frozenset(configs), members=True)

    async def _read_changes(self) -> ViewChange:
        data, stat = await self._coordination.get(Changes.PATH, self._watch(_Part.CHANGES))
        changes = Changes.decode(data)
        notices = changes.since(self.changes_version, stat.version)
        if notices is None:
            change = await self._read_topics_and_configs()
        else:
            topics = {name for notice in notices for name in notice.topics or ()}
            configs = {name for notice in notices for name in notice.configs}
            await _at_once(self._read_config, sorted(configs))
            await _at_once(self._read_topic, sorted(topics))
            change = ViewChange(frozenset(topics), frozenset(configs))
        self._changes, self.changes_version = changes, stat.version  # not before: a failed read is made again
        return change

    async def _read_registrations(self) -> None:
        ids, _ = await self._coordination.children(BROKER_IDS_PATH, self._watch(_Part.REGISTRATIONS))
        brokers: dict[int, BrokerNode] = {}
        epochs: dict[int, int] = {}

        async def read(name: str) -> None:
            try:
                data, stat = await self._coordination.get(f"{BROKER_IDS_PATH}/{name}")
            except NoNodeError:
                return
            brokers[int(name)] = BrokerNode.decode(data)
            epochs[int(name)] = stat.czxid

        await _at_once(read, ids)
        self.brokers = dict(sorted(brokers.items()))
        self.broker_epochs = epochs

    async def _read_admitted(self) -> None:
        stat = await self._coordination.exists(AdmittedBrokers.PATH, self._watch(_Part.ADMITTED))
        if stat is None:
            self.admitted, self._admitted_version = AdmittedBrokers(), None
            return
        data, stat = await self._coordination.get(AdmittedBrokers.PATH)
        self.admitted, self._admitted_version = AdmittedBrokers.decode(data), stat.version

    async def _read_controller(self) -> None:
        stat = await self._coordination.exists(ControllerNode.PATH, self._watch(_Part.CONTROLLER))
        self.controller_id = self.controller_epoch = -1
        if stat is not None:
            try:
                data, _ = await self._coordination.get(ControllerNode.PATH)
            except NoNodeError:
                return  # the watch has it
            node = ControllerNode.decode(data)
            self.controller_id, self.controller_epoch = node.broker_id, node.epoch

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

    async def _tell(self, change: ViewChange) -> None:
        if change != ViewChange():
            try:
                for listener in self._listeners:
                    await listener(change)
            except BaseException:
                self._session_id = 0  # what they have missed they are told with everything else
                raise
        self._told_version = self.changes_version
        for waiting in [each for each in self._reached if each[0] <= self._told_version]:
            self._reached.remove(waiting)
            if not waiting[1].done():
                waiting[1].set_result(None)


async def _at_once(read: Callable[[str], Awaitable[None]], names: Iterable[str]) -> None:
    """Read many znodes: many are asked for before the first answer comes."""
    left = list(names)
    for first in range(0, len(left), READ_AT_ONCE_MAX):
        await asyncio.gather(*map(read, left[first : first + READ_AT_ONCE_MAX]))


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
