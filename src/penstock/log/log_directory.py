"""One log directory: the folders of its partitions, the checkpoints they share, and whose it is.

Opening takes the lock, checks the owner, reads the checkpoints and takes away the mark of a clean stop, so that only a
clean stop leaves one again. The checkpoints say where recovery begins (recovery points), where logs begin (log
starts), how far they were committed (high watermarks) and how far they were compacted. They may lag behind, which costs
time; they must never run ahead, which would cost data: a log that is cut lowers them first.

A replica that is moved here from another directory is a *future* one until it has everything: its folder has a name of
its own, and a clean stop closes it like the others. To be renamed is what makes it the replica; see `moved_from.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from threading import Lock as ThreadLock
from typing import NamedTuple
from uuid import UUID

from penstock.base.identifiers import TopicPartition
from penstock.base.world import Clock, Disk, Lock, Random, write_file_durably
from penstock.log.checkpoints import DamagedCheckpoint, encode_offsets, read_offsets
from penstock.log.config import LogConfig
from penstock.log.file_cache import FileCache
from penstock.log.meta_properties import LogDirectoryError, MetaProperties, claim
from penstock.log.moved_from import read_moved_from, write_moved_from
from penstock.log.names import (
    deleted_folder_name,
    future_folder_name,
    is_deleted_folder,
    partition_of_folder,
    partition_of_future_folder,
)
from penstock.log.partition_log import PartitionLog
from penstock.log.partition_metadata import read_topic_id
from penstock.log.removal import remove_folder

logger = logging.getLogger(__name__)

RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
LOG_STARTS_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"
CLEANED_FILE = "cleaner-offset-checkpoint"
CLEAN_STOP_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
CLEAN_STOP_CONTENT = b'{"version":0,"brokerEpoch":-1}'
KRAFT_LOG_TOPIC = "__cluster_metadata"

Offsets = dict[TopicPartition, int]


class StoredPartition(NamedTuple):
    """A partition's folder as it was found; the topic is None if the folder does not say."""

    topic_partition: TopicPartition
    topic_id: UUID | None


class StoredFuture(NamedTuple):
    """The folder of a copy that is not whole yet, as it was found."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    folder_name: str


class LogDirectory:
    """One of the broker's log directories, locked and in use."""

    def __init__(self, disk: Disk, clock: Clock, random: Random, path: str, lock: Lock, meta: MetaProperties) -> None:
        self.disk = disk
        self.path = path
        self.meta = meta
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}  # copies that are not whole yet
        self.files = FileCache(disk)
        self.offline: str | None = None
        self.high_watermarks = self._read(HIGH_WATERMARKS_FILE)
        self._clock = clock
        self._random = random
        self._lock = lock
        self._recovery_points = self._read(RECOVERY_POINTS_FILE)  # of partitions that are not open
        self._log_starts = self._read(LOG_STARTS_FILE)
        self._cleaned = self._read(CLEANED_FILE)
        self._in_file: dict[str, Set[TopicPartition]] = {  # whom each of the files names
            RECOVERY_POINTS_FILE: frozenset(self._recovery_points),
            LOG_STARTS_FILE: frozenset(self._log_starts),
            CLEANED_FILE: frozenset(self._cleaned),
            HIGH_WATERMARKS_FILE: frozenset(self.high_watermarks),
        }
        self._closed_cleanly: set[TopicPartition] = set()
        self._futures_closed: set[str] = set()  # their folders
        self._has_failed = False
        self._written: dict[str, bytes] = {}
        self._writing = ThreadLock()
        self.was_clean = self._take_clean_mark()

    @classmethod
    def open(
        cls, disk: Disk, clock: Clock, random: Random, path: str, *, node_id: int, cluster_id: str
    ) -> LogDirectory:
        """Make or take a log directory; LogDirectoryError if another process, broker or cluster has it."""
        _make_dirs_durably(disk, path)
        try:
            lock = disk.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError as error:
            raise LogDirectoryError(f"{path} is in use by another process. Stop it, or use another folder.") from error
        try:
            meta = claim(disk, path, node_id, cluster_id, UUID(bytes=random.randbytes(16), version=4))
            return cls(disk, clock, random, path, lock, meta)
        except BaseException:
            lock.release()
            raise

    def _read(self, name: str) -> Offsets:
        path = f"{self.path}/{name}"
        try:
            return read_offsets(self.disk, path) or {}
        except DamagedCheckpoint as problem:
            logger.warning("%s; the logs are checked instead", problem)
            return {}

    def _take_clean_mark(self) -> bool:
        path = f"{self.path}/{CLEAN_STOP_FILE}"
        if not self.disk.exists(path):
            return False
        was_clean = self.disk.file_size(path) > 0
        self.disk.remove(path)
        self.disk.sync_dir(self.path)
        return was_clean

    # -- partitions

    def stored_partitions(self) -> list[StoredPartition]:
        """The partitions that have a folder here."""
        found = []
        for name in self.disk.list_dir(self.path):
            topic_partition = partition_of_folder(name)
            if topic_partition is None or topic_partition.topic == KRAFT_LOG_TOPIC:
                continue
            folder = f"{self.path}/{name}"
            if self.disk.is_dir(folder):
                found.append(StoredPartition(topic_partition, read_topic_id(self.disk, folder)))
        return found

    def open_partition(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> PartitionLog:
        """Open a partition's log, or make a new one. Blocks when there is something to recover."""
        is_new = not self.disk.is_dir(f"{self.path}/{topic_partition}")
        if is_new:
            self._forget_durably(topic_partition)
        log = PartitionLog.open(
            self.disk,
            self._clock,
            self.path,
            topic_partition,
            config,
            topic_id=topic_id,
            clean_shutdown=self.was_clean or is_new or topic_partition in self._closed_cleanly,
            recovery_point=self._recovery_points.get(topic_partition, 0),
            log_start_offset=self._log_starts.get(topic_partition, 0),
            cleaned_offset=self._cleaned.get(topic_partition, 0),
            files=self.files,
            lower_recovery_point=self.write_offsets,
        )
        self.logs[topic_partition] = log
        return log

    def close_partition(self, topic_partition: TopicPartition) -> None:
        """Flush a log and let go of it; its folder stays. Blocks."""
        log = self.logs[topic_partition]
        log.close()
        del self.logs[topic_partition]
        self._recovery_points[topic_partition] = log.recovery_point
        self._log_starts[topic_partition] = log.start_offset
        self._cleaned[topic_partition] = log.cleaned_offset
        if log.failure is None:
            self._closed_cleanly.add(topic_partition)
        else:
            self._has_failed = True

    def delete_partition(self, topic_partition: TopicPartition) -> str:
        """Take a partition out of the directory; returns the folder that `remove_deleted` has to remove. Blocks."""
        log = self.logs.pop(topic_partition)
        deleted = log.delete(self._random.randbytes(16).hex())
        self._forget(topic_partition)
        return deleted

    def delete_stored(self, topic_partition: TopicPartition) -> str:
        """The same for a partition that is not open. Blocks."""
        folder = f"{self.path}/{topic_partition}"
        deleted = f"{self.path}/{deleted_folder_name(topic_partition, self._random.randbytes(16).hex())}"
        self.disk.rename(folder, deleted)
        self.files.drop_folder(folder)
        self.disk.sync_dir(self.path)
        self._forget(topic_partition)
        return deleted

    # -- replicas that are moved here, or away

    def stored_futures(self) -> list[StoredFuture]:
        """The copies under way that have a folder here."""
        found = []
        for name in self.disk.list_dir(self.path):
            topic_partition = partition_of_future_folder(name)
            folder = f"{self.path}/{name}"
            if topic_partition is not None and self.disk.is_dir(folder):
                found.append(StoredFuture(topic_partition, read_topic_id(self.disk, folder), name))
        return found

    def new_future(self, topic_partition: TopicPartition, topic_id: UUID) -> StoredFuture:
        """The name of a copy that is to be made."""
        name = future_folder_name(topic_partition, self._random.randbytes(16).hex())
        assert name is not None, "the topic's name is too long to be moved"
        return StoredFuture(topic_partition, topic_id, name)

    def make_future(self, stored: StoredFuture, source: LogDirectory) -> None:
        """Make the folder for a copy of a replica in another directory. Blocks; may be tried again."""
        folder = f"{self.path}/{stored.folder_name}"
        old = read_moved_from(self.disk, f"{source.path}/{stored.topic_partition}")
        moved_from = [each for each in (source.meta.directory_id, *old) if each != self.meta.directory_id]
        self.disk.make_dirs(folder)
        write_moved_from(self.disk, folder, moved_from)

    def open_future(
        self, stored: StoredFuture, topic_id: UUID, config: LogConfig, *, is_clean: bool | None = None
    ) -> PartitionLog:
        """Go on with a copy, clean as this directory was if nothing else is known. Blocks when it must be recovered."""
        log = PartitionLog.open(
            self.disk,
            self._clock,
            self.path,
            stored.topic_partition,
            config,
            topic_id=topic_id,
            clean_shutdown=self.was_clean if is_clean is None else is_clean,
            files=self.files,
            folder_name=stored.folder_name,
        )
        self.futures[stored.topic_partition] = log
        return log

    def finish_future(self, topic_partition: TopicPartition, high_watermark: int) -> None:
        """Close a copy that has everything, and write down what belongs to it. Blocks."""
        log = self.futures.pop(topic_partition)
        log.close()
        self._recovery_points[topic_partition] = log.recovery_point
        self._log_starts[topic_partition] = log.start_offset
        self._cleaned[topic_partition] = log.cleaned_offset
        self.high_watermarks[topic_partition] = high_watermark
        self.write_offsets()
        self.write_high_watermarks({})

    def promote_future(self, stored: StoredFuture, topic_id: UUID, config: LogConfig) -> PartitionLog:
        """Make a finished copy the replica: from here on the one it was copied from is stale. Blocks."""
        folder = f"{self.path}/{stored.folder_name}"
        self.disk.rename(folder, f"{self.path}/{stored.topic_partition}")
        self.files.drop_folder(folder)
        self.disk.sync_dir(self.path)
        self._closed_cleanly.add(stored.topic_partition)
        return self.open_partition(stored.topic_partition, topic_id, config)

    def delete_future(self, stored: StoredFuture) -> None:
        """Give a copy up; `remove_deleted` removes what is left of it. Blocks."""
        self.futures.pop(stored.topic_partition, None)
        folder = f"{self.path}/{stored.folder_name}"
        if not self.disk.is_dir(folder):
            return
        name = deleted_folder_name(stored.topic_partition, self._random.randbytes(16).hex())
        self.disk.rename(folder, f"{self.path}/{name}")
        self.files.drop_folder(folder)
        self.disk.sync_dir(self.path)

    def moved_away(self, topic_partition: TopicPartition) -> None:
        """The replica is another directory's now; what is left of it here is to be deleted (`retire_sources`)."""
        del self.logs[topic_partition]
        self._closed_cleanly.add(topic_partition)

    # -- what the files say

    def _forget(self, topic_partition: TopicPartition) -> None:
        """The files lose it with the next checkpoint: a delete needs no room, and no sync for each partition."""
        self._recovery_points.pop(topic_partition, None)
        self._log_starts.pop(topic_partition, None)
        self._cleaned.pop(topic_partition, None)
        self.high_watermarks.pop(topic_partition, None)
        self._closed_cleanly.discard(topic_partition)

    def _forget_durably(self, topic_partition: TopicPartition) -> None:
        """No offset of an earlier partition of this name may be taken for one of the next."""
        self._forget(topic_partition)
        if any(topic_partition in named for named in self._in_file.values()):
            self.write_offsets()
            self.write_high_watermarks({})

    def deleted_folders(self) -> list[str]:
        """Folders of deleted partitions that are not removed yet."""
        return [f"{self.path}/{name}" for name in self.disk.list_dir(self.path) if is_deleted_folder(name)]

    def remove_deleted(self, folder: str) -> None:
        """Remove the folder of a deleted partition. Blocks; runs in another thread."""
        try:
            remove_folder(self.disk, folder)
        except FileNotFoundError:
            pass

    # -- checkpoints

    def write_offsets(self) -> None:
        """Write recovery points, log starts and how far logs are compacted, as far as they have changed. Blocks; may
        run in any thread.
        """
        with self._writing:
            logs = list(self.logs.items())
            points = {**self._recovery_points, **{tp: log.recovery_point for tp, log in logs}}
            starts = {**self._log_starts, **{tp: log.start_offset for tp, log in logs}}
            self._write(RECOVERY_POINTS_FILE, points)
            self._write(LOG_STARTS_FILE, {tp: offset for tp, offset in starts.items() if offset > 0})
            cleaned = {**self._cleaned, **{tp: log.cleaned_offset for tp, log in logs}}
            self._write(CLEANED_FILE, {tp: offset for tp, offset in cleaned.items() if offset > 0})

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write how far each log is committed; partitions that are not named keep what they had. Blocks."""
        with self._writing:
            self.high_watermarks.update({tp: mark for tp, mark in high_watermarks.items() if tp in self.logs})
            self._write(HIGH_WATERMARKS_FILE, self.high_watermarks)

    def _write(self, name: str, offsets: Offsets) -> None:
        content = encode_offsets(offsets)
        if self._written.get(name) != content:
            self._written.pop(name, None)
            self._in_file[name] = self._in_file[name] | offsets.keys()
            write_file_durably(self.disk, f"{self.path}/{name}", content)
            self._in_file[name] = frozenset(offsets)
            self._written[name] = content

    # -- the disk

    def go_offline(self, reason: str) -> None:
        """The disk has failed: nothing here is written any more until a restart."""
        if self.offline is None:
            self.offline = reason
            logger.error("log directory %s goes offline: %s", self.path, reason)
            for log in [*self.logs.values(), *self.futures.values()]:  # a thread may be opening others
                log.fail(f"log directory {self.path} is offline: {reason}")

    def has_room(self, reserve_bytes: int) -> bool:
        """Whether more than the reserve is free; below it produces are refused while the rest goes on."""
        return self.disk.free_bytes(self.path) > reserve_bytes

    def close(self) -> None:
        """Close every log, write the checkpoints and leave the mark of a clean stop. Blocks."""
        for topic_partition in list(self.logs):
            self.close_partition(topic_partition)
        for log in self.futures.values():
            log.close()
            self._futures_closed.add(log.folder.rpartition("/")[2])
            self._has_failed |= log.failure is not None
        if self.offline is None and self._all_closed_cleanly():
            self.write_offsets()
            write_file_durably(self.disk, f"{self.path}/{CLEAN_STOP_FILE}", CLEAN_STOP_CONTENT)
        self._lock.release()

    def _all_closed_cleanly(self) -> bool:
        """Partitions that were never opened are still as the last stop left them."""
        if self._has_failed:
            return False
        if self.was_clean:
            return True
        stored = {partition.topic_partition for partition in self.stored_partitions()}
        futures = {future.folder_name for future in self.stored_futures()}
        return stored <= self._closed_cleanly and futures <= self._futures_closed

    def abandon(self) -> None:
        """Let go of the lock without writing anything."""
        self._lock.release()


def _make_dirs_durably(disk: Disk, path: str) -> None:
    parent = path.rpartition("/")[0]
    if not disk.is_dir(path):
        if parent:
            _make_dirs_durably(disk, parent)
        disk.make_dirs(path)
        disk.sync_dir(parent or ("/" if path.startswith("/") else "."))


def retire_sources(directory: LogDirectory, topic_partition: TopicPartition, all_: Iterable[LogDirectory]) -> None:
    """Delete what a replica has left in the directories that it was moved from, as far as they can be reached. Blocks.

    Once it is gone for sure, the replica forgets where it came from.
    """
    folder = f"{directory.path}/{topic_partition}"
    by_id = {other.meta.directory_id: other for other in all_ if other.offline is None}
    moved_from = read_moved_from(directory.disk, folder)
    if not moved_from:
        return
    topic_id = read_topic_id(directory.disk, folder)
    for other in [by_id[each] for each in moved_from if each in by_id]:
        old = f"{other.path}/{topic_partition}"
        if other.disk.is_dir(old) and read_topic_id(other.disk, old) in (topic_id, None):
            other.delete_stored(topic_partition)
    write_moved_from(directory.disk, folder, [each for each in moved_from if each not in by_id])


def choose_directory(directories: Iterable[LogDirectory]) -> LogDirectory:
    """Where a new partition goes: the directory with the fewest partitions; LogDirectoryError if all are offline."""
    online = [directory for directory in directories if directory.offline is None]
    if not online:
        raise LogDirectoryError("every log directory is offline")
    return min(online, key=lambda directory: len(directory.logs))
