"""The partitions that this broker holds, on its log directories.

`follow` makes them what the cluster's view says: opens what is new, lets go of what was deleted, hands on changed
settings. Everything else finds partitions here, and gets the right error for one that is not here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.settings import Settings
from penstock.base.world import NoSpaceError, World, lacks_space
from penstock.broker.cluster_view import ClusterView
from penstock.broker.partition import Partition
from penstock.broker.partition_config import PartitionConfig
from penstock.log.log_directory import LogDirectory, choose_directory
from penstock.log.meta_properties import LogDirectoryError
from penstock.log.partition_log import PartitionLog
from penstock.log.retention import DeletedSegment
from penstock.replication.leader import Leader, Membership
from penstock.zookeeper.topic_znodes import PartitionState, Topic

logger = logging.getLogger(__name__)

OPENED_AT_ONCE_MAX = 50  # partitions; the loop waits for as many without anybody noticing


class Partitions:
    """See the head of this file."""

    def __init__(self, world: World, node_id: int, directories: list[LogDirectory]) -> None:
        self.directories = directories
        self.cordoned: frozenset[str] = frozenset()
        self._world = world
        self._node_id = node_id
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._name_of_id: dict[UUID, str] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._following = asyncio.Lock()
        self.without_room: frozenset[str] = frozenset()
        """Topics of which some partition could not be opened for lack of space: to be followed again."""
        # folders that are not open: after a failure a deleted partition may lie beside a living one of its name
        self._stored: dict[TopicPartition, dict[LogDirectory, UUID | None]] = {}
        for directory in directories:
            for stored in directory.stored_partitions():
                self._stored.setdefault(stored.topic_partition, {})[directory] = stored.topic_id

    @classmethod
    async def open(cls, world: World, node_id: int, cluster_id: str, settings: Settings) -> Partitions:
        """Take the log directories; LogDirectoryError if one belongs to somebody else."""
        directories: list[LogDirectory] = []
        try:
            for path in settings.list("log.dirs"):
                directories.append(
                    LogDirectory.open(
                        world.disk, world.clock, world.random, path, node_id=node_id, cluster_id=cluster_id
                    )
                )
        except BaseException:
            for directory in directories:
                directory.abandon()
            raise
        return cls(world, node_id, directories)

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_topic.values():
            yield from partitions.values()

    def get(self, name: TopicPartition) -> Partition | None:
        partitions = self._by_topic.get(name.topic)
        return partitions.get(name.partition) if partitions is not None else None

    def find(self, topic: str, index: int) -> Partition:
        """The partition, or the ApiError that says why it is not served here."""
        partitions = self._by_topic.get(topic)
        if partitions is None:
            raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        partition = partitions.get(index)
        if partition is None:
            raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.is_gone:
            raise ApiError(Error.KAFKA_STORAGE_ERROR)
        return partition

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        name = self._name_of_id.get(topic_id)
        if name is None:
            raise ApiError(Error.UNKNOWN_TOPIC_ID)
        return self.find(name, index)

    def name_of_id(self, topic_id: UUID) -> str | None:
        return self._name_of_id.get(topic_id)

    def directory_of(self, partition: Partition) -> LogDirectory:
        return self._directory_of[partition.name]

    # ── following the cluster ────────────────────────────────────────────────────────────────────────────────────

    async def follow(
        self, view: ClusterView, names: Iterable[str], config_of: Callable[[str], PartitionConfig]
    ) -> None:
        """Make the partitions of the named topics what the view says they are."""
        async with self._following:
            await self._follow(view, names, config_of)

    async def _follow(
        self, view: ClusterView, names: Iterable[str], config_of: Callable[[str], PartitionConfig]
    ) -> None:
        opening: list[tuple[Topic, int]] = []
        for name in names:
            topic = view.topics.get(name)
            held = self._by_topic.get(name, {})
            if held and (topic is None or next(iter(held.values())).topic_id != topic.topic_id):
                await self._drop_topic(name)
                held = {}
            if topic is None:
                self.without_room -= {name}
            else:
                opening += [
                    (topic, index)
                    for index, state in enumerate(topic.partitions)
                    if index not in held and self._node_id in state.replicas
                ]
        if opening:
            configs = {topic.name: config_of(topic.name) for topic, _ in opening}
            if len(opening) > OPENED_AT_ONCE_MAX or self._must_recover(opening):
                opened = await self._world.disk.run("read", lambda: self._open_all(opening, configs))
            else:
                opened = self._open_all(opening, configs)
            for partition, directory in opened:
                self._add(partition, directory)

    def _must_recover(self, opening: list[tuple[Topic, int]]) -> bool:
        """Whether opening these has to read their logs, which is not for the loop to wait for."""
        found = (self._stored.get(TopicPartition(topic.name, index), ()) for topic, index in opening)
        return any(not directory.was_clean for directories in found for directory in directories)

    def _open_all(
        self, opening: list[tuple[Topic, int]], configs: dict[str, PartitionConfig]
    ) -> list[tuple[Partition, LogDirectory]]:
        """Open what can be opened. Blocks when there is something to recover; may run in another thread."""
        opened: list[tuple[Partition, LogDirectory]] = []
        lacking: set[str] = set()
        for topic, index in opening:
            try:
                opened.append(self._open(topic, index, configs[topic.name]))
            except (OSError, LogDirectoryError, ApiError) as error:
                if lacks_space(error) or lacks_space(error.__cause__):
                    lacking.add(topic.name)
                if topic.name not in self.without_room & lacking:
                    logger.error("%s-%d cannot be opened: %s", topic.name, index, error)
        self.without_room = (self.without_room - configs.keys()) | lacking
        return opened

    def _open(self, topic: Topic, index: int, config: PartitionConfig) -> tuple[Partition, LogDirectory]:
        name = TopicPartition(topic.name, index)
        directory = self._directory_for(name, topic.topic_id)
        log = directory.open_partition(name, topic.topic_id, config.log)
        try:
            if config.log.flush_mode == "always" and log.recovery_point < log.end_offset:
                log.rewrite_and_flush()  # what recovery found counts as committed from here on, so it must be durable
        except BaseException:
            del directory.logs[name]
            raise
        self._forget_stored(name, directory)
        leader = self._leader(topic.partitions[index], log)
        partition = Partition(name, topic.topic_id, log, config, leader, self._world.disk, self._storage_failed)
        return partition, directory

    def _leader(self, state: PartitionState, log: PartitionLog) -> Leader:
        """Whatever recovery kept is all there is: with one replica it is committed."""
        return Leader(
            self._node_id,
            state.leader_epoch,
            Membership(state.replicas, frozenset(state.isr), state.partition_epoch),
            end_offset=log.end_offset,
            counted_end_offset=log.end_offset,
            high_watermark=log.end_offset,
            min_isr=1,
            now_ms=int(self._world.clock.monotonic() * 1000),
        )

    def _directory_for(self, name: TopicPartition, topic_id: UUID) -> LogDirectory:
        """Where a partition is stored, or is to be; if it cannot be opened now, the next try is made there too."""
        stored = self._stored.setdefault(name, {})
        for known_id in (topic_id, None):
            for directory, stored_id in stored.items():
                if stored_id == known_id:
                    stored[directory] = topic_id
                    return directory
        free = [directory for directory in self._open_to_new() if directory not in stored]
        directory = choose_directory(free or self._open_to_new())
        stored.setdefault(directory, topic_id)
        return directory

    def _forget_stored(self, name: TopicPartition, directory: LogDirectory) -> None:
        stored = self._stored[name]
        del stored[directory]
        if not stored:
            del self._stored[name]

    def _add(self, partition: Partition, directory: LogDirectory) -> None:
        name = partition.name
        self._by_topic.setdefault(name.topic, {})[name.partition] = partition
        self._name_of_id[partition.topic_id] = name.topic
        self._directory_of[name] = directory

    def _open_to_new(self) -> list[LogDirectory]:
        """The directories that take new partitions: those not cordoned, or all if there is no other."""
        free = [each for each in self.directories if "*" not in self.cordoned and each.path not in self.cordoned]
        return free or self.directories

    async def _drop_topic(self, name: str) -> None:
        """The topic was deleted: answer who waits, and take its folders out of the log directories."""
        dropped = self._by_topic.pop(name)
        for partition in dropped.values():
            self._name_of_id.pop(partition.topic_id, None)
            partition.go(Error.UNKNOWN_TOPIC_OR_PARTITION)
        for partition in dropped.values():
            await partition.sync_is_over()
            directory = self._directory_of.pop(partition.name)
            if directory.offline is None:
                await self._world.disk.run("delete", partial(directory.delete_partition, partition.name))
            else:
                self._stored.setdefault(partition.name, {})[directory] = partition.topic_id

    async def remove_leftovers(self, name: str, topic_id: UUID) -> bool:
        """Remove folders of a deleted topic that a stop or a failure has left; whether nothing of it is here any more.

        A folder that does not say whose it is (a crash took that file) is the deleted topic's too: what lives now has
        been opened already.
        """
        async with self._following:
            left = [
                (partition, directory)
                for partition, stored in self._stored.items()
                for directory, stored_id in stored.items()
                if partition.topic == name and stored_id in (topic_id, None)
            ]
            for partition, directory in left:
                if directory.offline is not None:
                    return False
                self._forget_stored(partition, directory)
                if self._world.disk.is_dir(f"{directory.path}/{partition}"):
                    await self._world.disk.run("delete", partial(directory.delete_stored, partition))
            return topic_id not in self._name_of_id  # otherwise its deletion has only been decided yet

    def use_configs(self, names: Iterable[str], config_of: Callable[[str], PartitionConfig]) -> None:
        """The settings of topics have changed."""
        for name in names:
            held = self._by_topic.get(name)
            if held:
                config = config_of(name)
                for partition in held.values():
                    partition.use_config(config)

    @property
    def topic_names(self) -> list[str]:
        return list(self._by_topic)

    # ── the disk ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def delete_records(self, partition: Partition, offset: int) -> None:
        """Move a log's start forward, durably, and remove the segments before it.

        On a full disk the segments go first, to make room. A start that could not be written is, when asked for again,
        no news, but still to be written.
        """
        is_news = partition.log.advance_start_offset(offset)
        write_offsets = self.directory_of(partition).write_offsets
        try:
            try:
                await self._world.disk.run("sync", write_offsets)
            except NoSpaceError:
                await self.apply_retention(partition)
                await self._world.disk.run("sync", write_offsets)
        except NoSpaceError as error:
            raise ApiError(Error.KAFKA_STORAGE_ERROR, str(error)) from error
        if is_news:
            partition.log_start_moved()
            await self.apply_retention(partition)

    async def apply_retention(self, partition: Partition) -> list[DeletedSegment]:
        """Delete the segments of one partition that are due."""
        log = partition.log
        if partition.is_gone or partition.is_syncing:
            return []
        start_offset = log.start_offset
        try:
            deleted = log.apply_retention(self._world.clock.wall_ms(), high_watermark=partition.high_watermark)
        except ApiError as error:
            self._storage_failed(partition, error)
            return []
        if not deleted:
            return []
        directory = self.directory_of(partition)

        def remove() -> None:
            try:
                directory.write_offsets()
            except NoSpaceError:
                pass  # what is removed makes room; without its offset the log begins with the first segment that stays
            log.remove_files(deleted)

        await self._world.disk.run("delete", remove)
        if log.start_offset != start_offset:
            partition.log_start_moved()
        for segment in deleted:
            logger.info(
                "%s: deleted offsets %d to %d (%d bytes) by %s",
                partition.name,
                segment.base_offset,
                segment.next_offset - 1,
                segment.size_bytes,
                segment.reason,
            )
        return deleted

    def _storage_failed(self, partition: Partition, error: ApiError) -> None:
        """A sync or a write that cannot be undone has failed: its whole log directory goes offline."""
        directory = self._directory_of.get(partition.name)
        if directory is None:
            return
        directory.go_offline(error.message)
        for other in self:
            if self._directory_of[other.name] is directory and not other.is_gone:
                other.go(Error.KAFKA_STORAGE_ERROR)

    async def close(self) -> None:
        """Flush everything and leave the mark of a clean stop."""
        for partition in self:
            partition.go(Error.NOT_LEADER_OR_FOLLOWER)
        for partition in self:
            await partition.sync_is_over()
        for directory in self.directories:
            try:
                await self._world.disk.run("sync", directory.close)
            except (OSError, ApiError) as error:  # a full disk, say; the next start recovers
                logger.error("%s cannot be closed cleanly: %s", directory.path, error)
                directory.abandon()
