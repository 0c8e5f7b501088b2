"""The partitions that this broker holds a replica of, on its log directories.

`follow` makes them what the cluster's view says: opens what is new, lets go of what was deleted or moved away, has each
lead or follow, hands on changed settings. Everything else finds partitions here, and gets the right error for one that
is not here, or not led here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.settings import Settings
from penstock.base.world import NoSpaceError, World, lacks_space
from penstock.broker.audit_log import Record, not_recorded
from penstock.broker.cluster_view import ClusterView
from penstock.broker.lease import Lease
from penstock.broker.partition import Partition
from penstock.broker.partition_config import PartitionConfig
from penstock.log.boot_mark import BootMark
from penstock.log.log_directory import LogDirectory, choose_directory, retire_sources
from penstock.log.meta_properties import LogDirectoryError
from penstock.log.retention import DeletedSegment
from penstock.zookeeper.topic_znodes import Topic

logger = logging.getLogger(__name__)

OPENED_AT_ONCE_MAX = 50  # partitions; the loop waits for as many without anybody noticing


class Partitions:
    """See the head of this file."""

    def __init__(
        self, world: World, node_id: int, directories: list[LogDirectory], view: ClusterView, lease: Lease
    ) -> None:
        self.directories = directories
        self.boot_marks = [
            BootMark(world.disk, each.path, world.boot_id, was_clean=each.was_clean) for each in directories
        ]
        self._view = view
        self._lease = lease
        self._on_storage_failure = self._storage_failed  # one for all partitions
        self._on_roles: list[Callable[[list[Partition]], None]] = []
        self.cordoned: frozenset[str] = frozenset()
        self._world = world
        self._node_id = node_id
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._name_of_id: dict[UUID, str] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """Where partitions go that are not here yet, if somebody has said so."""
        self._following = asyncio.Lock()
        self.record: Record = not_recorded  # why bytes went
        self.removed_bytes: Counter[str] = Counter()  # of all partitions that are or were here, by the reason
        self.without_room: frozenset[str] = frozenset()
        """Topics of which some partition could not be opened for lack of space: to be followed again."""
        # folders that are not open: after a failure a deleted partition may lie beside a living one of its name
        self._stored: dict[TopicPartition, dict[LogDirectory, UUID | None]] = {}
        for directory in directories:
            for stored in directory.stored_partitions():
                self._stored.setdefault(stored.topic_partition, {})[directory] = stored.topic_id

    @classmethod
    async def open(cls, world: World, node_id: int, view: ClusterView, lease: Lease, settings: Settings) -> Partitions:
        """Take the log directories; LogDirectoryError if one belongs to somebody else."""
        directories: list[LogDirectory] = []
        try:
            for path in settings.list("log.dirs"):
                directories.append(
                    LogDirectory.open(
                        world.disk, world.clock, world.random, path, node_id=node_id, cluster_id=view.cluster_id
                    )
                )
            for directory in directories:
                for stored in directory.stored_partitions():
                    retire_sources(directory, stored.topic_partition, directories)
        except BaseException:
            for directory in directories:
                directory.abandon()
            raise
        return cls(world, node_id, directories, view, lease)

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_topic.values():
            yield from partitions.values()

    def get(self, name: TopicPartition) -> Partition | None:
        partitions = self._by_topic.get(name.topic)
        return partitions.get(name.partition) if partitions is not None else None

    def find(self, topic: str, index: int) -> Partition:
        """The partition, leading or following, or the ApiError that says why it is not here."""
        partitions = self._by_topic.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is None:
            raise ApiError(self._why_not_here(topic, index))
        if partition.is_gone:
            raise ApiError(Error.KAFKA_STORAGE_ERROR)
        return partition

    def _why_not_here(self, name: str, index: int) -> Error:
        topic = self._view.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        return Error.NOT_LEADER_OR_FOLLOWER

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        name = self.name_of_id(topic_id)
        if name is None:
            raise ApiError(Error.UNKNOWN_TOPIC_ID)
        partition = self.find(name, index)
        if partition.topic_id != topic_id:  # the topic was made anew, and not all of that has been taken over
            raise ApiError(Error.UNKNOWN_TOPIC_ID)
        return partition

    def find_led(self, topic: str, index: int) -> Partition:
        """The same for one that is led here."""
        partition = self.find(topic, index)
        partition.require_leader()
        return partition

    def find_led_by_id(self, topic_id: UUID, index: int) -> Partition:
        partition = self.find_by_id(topic_id, index)
        partition.require_leader()
        return partition

    def name_of_id(self, topic_id: UUID) -> str | None:
        name = self._name_of_id.get(topic_id)
        if name is None:
            topic = self._view.topic_by_id(topic_id)
            return topic.name if topic is not None else None
        return name

    def directory_of(self, partition: Partition) -> LogDirectory:
        return self._directory_of[partition.name]

    # ── following the cluster ────────────────────────────────────────────────────────────────────────────────────

    def on_roles(self, listener: Callable[[list[Partition]], None]) -> None:
        """Be told of partitions that began to lead, to follow somebody else, or went."""
        self._on_roles.append(listener)

    async def follow(
        self, names: Iterable[str], config_of: Callable[[str], PartitionConfig], *, may_lead: bool
    ) -> None:
        """Make the partitions of the named topics what the view says they are; without `may_lead` nothing is led."""
        async with self._following:
            names = list(names)
            changed = await self._open_and_drop(names, config_of)
            changed += await self._take_roles(names, may_lead)
            if changed:
                for listener in self._on_roles:
                    listener(changed)

    async def _take_roles(self, names: Iterable[str], may_lead: bool) -> list[Partition]:
        changed = []
        for name in names:
            topic = self._view.topics.get(name)
            for index, partition in list(self._by_topic.get(name, {}).items()):
                if partition.is_reworking:
                    await partition.sync_is_over()
                if topic is None or partition.topic_id != topic.topic_id or partition.is_gone:
                    continue  # a newer change is on its way
                if index < len(topic.partitions) and partition.take_role(
                    topic.partitions[index], self._node_id, may_lead=may_lead
                ):
                    changed.append(partition)
        return changed

    async def _open_and_drop(
        self, names: Iterable[str], config_of: Callable[[str], PartitionConfig]
    ) -> list[Partition]:
        """Open what is new here; returns what is not here any more."""
        dropped: list[Partition] = []
        opening: list[tuple[Topic, int]] = []
        for name in names:
            topic = self._view.topics.get(name)
            held = self._by_topic.get(name, {})
            if held and (topic is None or next(iter(held.values())).topic_id != topic.topic_id):
                dropped += held.values()
                await self._drop(list(held.values()), Error.UNKNOWN_TOPIC_OR_PARTITION)
                held = {}
            if topic is None:
                self.without_room -= {name}
            else:
                moved = [part for index, part in held.items() if self._node_id not in topic.partitions[index].replicas]
                dropped += moved
                await self._drop(moved, Error.NOT_LEADER_OR_FOLLOWER)
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
                self._put_recovery_on_record(partition)
        return dropped

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
        high_watermark = directory.high_watermarks.get(name, 0)
        partition = Partition(
            name, topic.topic_id, log, config, high_watermark, self._world, self._lease, self._on_storage_failure
        )
        partition.record = self.record
        return partition, directory

    def _put_recovery_on_record(self, partition: Partition) -> None:
        report = partition.log.recovery
        if report.problem is not None:
            self.record(
                "log_recovered",
                partition=partition.name,
                cut_at_offset=report.cut_at_offset,
                size_bytes=report.cut_bytes,
                was_synced=report.cut_below_recovery_point,
                problem=report.problem,
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
        preferred = self.preferred.pop(name, None)
        if preferred is not None and preferred.offline is None and preferred not in stored:
            free = [preferred]
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

    def moved(self, partition: Partition, target: LogDirectory) -> None:
        """A partition is stored in another directory now; what it has left in the old one is stale."""
        name = partition.name
        source = self._directory_of[name]
        source.moved_away(name)
        target.logs[name] = partition.log
        self._directory_of[name] = target
        self._stored.setdefault(name, {})[source] = partition.topic_id

    async def retire_sources(self, name: TopicPartition) -> None:
        """Delete what a moved partition has left in the directories that it was moved from."""
        async with self._following:
            directory = self._directory_of.get(name)
            if directory is None or directory.offline is not None:
                return
            await self._world.disk.run("delete", partial(retire_sources, directory, name, self.directories))
            for source in [each for each in self._stored.get(name, ()) if each.offline is None]:
                if not self._world.disk.is_dir(f"{source.path}/{name}"):
                    self._forget_stored(name, source)

    async def _drop(self, dropped: list[Partition], error: Error) -> None:
        """Deleted, or moved to other brokers: answer who waits, and take the folders out of the log directories."""
        for partition in dropped:
            held = self._by_topic[partition.name.topic]
            del held[partition.name.partition]
            if not held:
                del self._by_topic[partition.name.topic]
                self._name_of_id.pop(partition.topic_id, None)
            partition.go(error)
        for partition in dropped:
            await partition.sync_is_over()
            directory = self._directory_of.pop(partition.name)
            if directory.offline is None:
                self._note_dropped(partition, error)
                await self._world.disk.run("delete", partial(directory.delete_partition, partition.name))
            else:
                self._stored.setdefault(partition.name, {})[directory] = partition.topic_id
            for source in [each for each in self._stored.get(partition.name, ()) if each.offline is None]:
                if self._stored[partition.name][source] == partition.topic_id:  # it was moved, and just now
                    self._forget_stored(partition.name, source)
                    await self._world.disk.run("delete", partial(source.delete_stored, partition.name))

    def _note_dropped(self, partition: Partition, error: Error) -> None:
        log = partition.log
        reason = "topic deleted" if error is Error.UNKNOWN_TOPIC_OR_PARTITION else "replica moved"
        self.removed_bytes[reason] += log.size_bytes
        self.record("replica_deleted", partition=log.topic_partition, size_bytes=log.size_bytes, why=reason)
        logger.info(
            "%s: deleted offsets %d to %d (%d bytes): %s",
            partition.name,
            log.start_offset,
            log.end_offset - 1,
            log.size_bytes,
            reason,
        )

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

    async def remove_strays(self) -> None:
        """Remove replicas that were given to other brokers while this one was away."""
        async with self._following:
            strays = [
                (partition, directory)
                for partition, stored in self._stored.items()
                for directory, stored_id in stored.items()
                if directory.offline is None and self._is_stray(partition, stored_id)
            ]
            for partition, directory in strays:
                try:
                    await self._world.disk.run("delete", partial(directory.delete_stored, partition))
                except OSError as error:
                    logger.error("%s/%s cannot be removed: %s", directory.path, partition, error)
                    continue
                logger.info("%s/%s was given to other brokers and is removed", directory.path, partition)
                self._forget_stored(partition, directory)

    def _is_stray(self, partition: TopicPartition, stored_id: UUID | None) -> bool:
        topic = self._view.topics.get(partition.topic)
        if topic is None or topic.topic_id != stored_id or partition.partition >= len(topic.partitions):
            return False
        return self._node_id not in topic.partitions[partition.partition].replicas

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

    @property
    def has_lost(self) -> bool:
        """Whether unsynced records may have been lost since this broker was last admitted."""
        return any(mark.has_lost for mark in self.boot_marks)

    async def loss_is_known(self) -> None:
        """The controller has admitted this broker as one that may have lost records."""
        for mark in self.boot_marks:
            if mark.has_lost:
                await self._world.disk.run("sync", mark.forget_loss)

    # ── the disk ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def delete_records(self, partition: Partition, offset: int) -> None:
        """Move a log's start forward, durably, and remove the segments before it.

        On a full disk the segments go first, to make room. A start that could not be written is, when asked for again,
        no news, but still to be written.
        """
        is_news = await partition.in_turn(lambda: partition.log.advance_start_offset(offset))
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
        if partition.is_gone or partition.is_syncing or partition.exchange is not None:
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
            self.removed_bytes[segment.reason] += segment.size_bytes
            self.record(
                "segment_deleted",
                partition=partition.name,
                from_offset=segment.base_offset,
                to_offset=segment.next_offset,
                size_bytes=segment.size_bytes,
                why=segment.reason,
            )
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
        if directory is not None:
            self.directory_failed(directory, error.message)

    def directory_failed(self, directory: LogDirectory, reason: str) -> None:
        """Nothing in a log directory is served any more until a restart."""
        directory.go_offline(reason)
        self.record("log_directory_failed", directory=directory.path, why=reason)
        self._gone([other for other in self if self._directory_of[other.name] is directory])

    def replica_failed(self, partition: Partition, reason: str) -> None:
        """The same for one replica alone."""
        logger.error("%s is not served any more until a restart: %s", partition.name, reason)
        self._gone([partition])

    def _gone(self, partitions: list[Partition]) -> None:
        gone = [partition for partition in partitions if not partition.is_gone]
        for partition in gone:
            partition.go(Error.KAFKA_STORAGE_ERROR)
        if gone:
            for listener in self._on_roles:
                listener(gone)

    async def close(self) -> None:
        """Flush everything and leave the mark of a clean stop."""
        for partition in self:
            partition.go(Error.NOT_LEADER_OR_FOLLOWER)
        for partition in self:
            await partition.sync_is_over()
        marks = {partition.name: partition.high_watermark for partition in self}
        for directory in self.directories:
            try:
                if directory.offline is None:
                    await self._world.disk.run("sync", partial(directory.write_high_watermarks, marks))
                await self._world.disk.run("sync", directory.close)
            except (OSError, ApiError) as error:  # a full disk, say; the next start recovers
                logger.error("%s cannot be closed cleanly: %s", directory.path, error)
                directory.abandon()
