"""Moving replicas between the log directories of this broker, in the background.

The replica is copied into a *future* folder of the other directory, batch by batch, as a follower would fetch it. What
is appended meanwhile is copied in further rounds. When the copy is level, the partition is held for a moment: the last
piece is copied and synced, the folder is renamed, and the log goes on with the new files. That rename is the one step
that counts: before it a crash leaves the old replica and an unfinished copy, which is continued; after it the new one,
which says of the old one that it is stale (`log/moved_from.py`).

Where the old replica is cut meanwhile, as a follower's may be, the copy is cut too: where the two part is told by their
leader epochs, as between two brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.settings import Settings
from penstock.base.world import NoSpaceError, World, lacks_space
from penstock.broker.cluster_view import ClusterView
from penstock.broker.log_copy import copy_batches, cut_copy
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.reworking import rework
from penstock.log.log_directory import LogDirectory, StoredFuture
from penstock.log.names import future_folder_name
from penstock.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

T = TypeVar("T")

COPY_BYTES = 4 * 1024 * 1024  # at a time
FLUSH_BYTES = 64 * 1024 * 1024  # so that the last sync, for which the partition is held, is short
RETRY_S = 0.5
FULL_S = 5.0  # between attempts while the other disk is full
RETIRE_S = 1.0  # until the old files go: somebody may be reading them
FAILURES_MAX = 10
PREFERRED_MAX = 10_000
LONGEST_HEX = "0" * 32


@dataclass(eq=False, slots=True)
class Move:
    """One replica on its way to another directory."""

    partition: Partition
    source: LogDirectory
    target: LogDirectory
    wanted: LogDirectory  # where it shall be; if that is not the target (any more), the copy is given up
    stored: StoredFuture  # the copy
    is_made: bool = False  # its folder
    is_clean: bool | None = None  # what is in it, if that is known
    future: PartitionLog | None = None  # the copy, while it is open
    seen_cuts: int = -1
    unflushed_bytes: int = 0
    failures: int = 0
    is_waiting_for_space: bool = False
    not_before_s: float = 0.0
    moved: PartitionLog | None = None  # the copy, once it is the replica
    problem: Exception | None = None
    is_split: bool = False  # the rename failed half-way: only a restart can tell which of the two counts

    @property
    def name(self) -> TopicPartition:
        return self.partition.name


class ReplicaMoves:
    """See the head of this file."""

    def __init__(
        self, world: World, view: ClusterView, partitions: Partitions, settings: Callable[[], Settings]
    ) -> None:
        self._world = world
        self._view = view
        self._partitions = partitions
        self._settings = settings
        self._moves: dict[TopicPartition, Move] = {}
        self._to_retire: dict[TopicPartition, float] = {}  # partitions that were moved, and when the old files go
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._working: asyncio.Future[Any] | None = None

    def start(self) -> None:
        """Begin, with what a stop or a crash has interrupted."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._working is not None:
            await asyncio.wait([self._working])

    def __iter__(self) -> Iterator[Move]:
        return iter(self._moves.values())

    def begin(self, name: TopicPartition, path: str) -> None:
        """Move a replica; ApiError if that cannot be. A move to where it is already takes an earlier one back."""
        if future_folder_name(name, LONGEST_HEX) is None:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, "the name of the topic is too long for a move")
        wanted = self._directory(path)
        partition = self._partitions.get(name)
        if partition is None:
            self._prefer(name, wanted)
            raise ApiError(self._why_not_here(name), "there is no such replica here yet; it will be made there")
        if partition.is_gone:
            raise ApiError(Error.KAFKA_STORAGE_ERROR, "the log directory of the replica is offline")
        move = self._moves.get(name)
        source = self._partitions.directory_of(partition)
        if move is not None:
            move.wanted = wanted
        elif source is not wanted:
            self._moves[name] = _new(partition, source, wanted)
        self._news.set()

    def _prefer(self, name: TopicPartition, wanted: LogDirectory) -> None:
        preferred = self._partitions.preferred
        if len(preferred) >= PREFERRED_MAX:
            del preferred[next(iter(preferred))]
        preferred[name] = wanted

    def _why_not_here(self, name: TopicPartition) -> Error:
        topic = self._view.topics.get(name.topic)
        is_known = topic is not None and 0 <= name.partition < len(topic.partitions)
        return Error.REPLICA_NOT_AVAILABLE if is_known else Error.UNKNOWN_TOPIC_OR_PARTITION

    def _directory(self, path: str) -> LogDirectory:
        for directory in self._partitions.directories:
            if directory.path == path:
                if directory.offline is not None:
                    raise ApiError(Error.KAFKA_STORAGE_ERROR, f"log directory {path} is offline")
                return directory
        raise ApiError(Error.LOG_DIR_NOT_FOUND, f"this broker has no log directory {path}")

    # ── the rounds ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        await self._take_up()
        while True:
            await self._wait()
            self._news.clear()
            now_s = self._world.clock.monotonic()
            for move in [each for each in self._moves.values() if each.not_before_s <= now_s]:
                await self._step(move)
            for name in [name for name, at_s in self._to_retire.items() if at_s <= now_s]:
                await self._retire(name)

    async def _wait(self) -> None:
        due_s = [*(move.not_before_s for move in self._moves.values()), *self._to_retire.values()]
        alarm = None
        if due_s:
            delay_s = max(0.0, min(due_s) - self._world.clock.monotonic())
            alarm = asyncio.get_running_loop().call_later(delay_s, self._news.set)
        await self._news.wait()
        if alarm is not None:
            alarm.cancel()

    async def _take_up(self) -> None:
        """Go on with the copies that are found, or remove them if nobody wants them any more."""
        for directory in self._partitions.directories:
            try:
                for stored in await self._beside(directory.stored_futures):
                    await self._take_up_one(directory, stored)
            except OSError as error:
                logger.error("%s: unfinished moves cannot be taken up: %s", directory.path, error)

    async def _take_up_one(self, directory: LogDirectory, stored: StoredFuture) -> None:
        name = stored.topic_partition
        partition = self._partitions.get(name)
        if partition is None:
            topic = self._view.topics.get(name.topic)
            if topic is None or topic.topic_id != stored.topic_id:
                await self._beside(partial(directory.delete_future, stored))
            return
        source = self._partitions.directory_of(partition)
        is_wanted = stored.topic_id == partition.topic_id and source is not directory and name not in self._moves
        if is_wanted and not partition.is_gone:
            logger.info("%s: the move to %s goes on", name, directory.path)
            self._moves[name] = Move(partition, source, directory, directory, stored, is_made=True)
        else:
            await self._beside(partial(directory.delete_future, stored))

    async def _retire(self, name: TopicPartition) -> None:
        try:
            await self._partitions.retire_sources(name)
            del self._to_retire[name]
        except Exception:
            logger.exception("%s: the old replica cannot be removed yet", name)
            self._to_retire[name] = self._world.clock.monotonic() + FULL_S

    # ── one move ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _step(self, move: Move) -> None:
        if move.name in self._to_retire:  # of the move before, which may have been from there
            move.not_before_s = self._to_retire[move.name]
            return
        try:
            if self._is_over(move) or move.wanted is not move.target:
                await self._give_up(move)
            elif await self._copy_more(move):
                await self._finish(move)
        except (OSError, ApiError) as error:
            await self._failed(move, error)
        except Exception as error:
            logger.exception("%s: the move to %s failed", move.name, move.target.path)
            await self._failed(move, error)

    def _is_over(self, move: Move) -> bool:
        is_here = self._partitions.get(move.name) is move.partition and not move.partition.is_gone
        return not is_here or move.target.offline is not None

    async def _copy_more(self, move: Move) -> bool:
        """Copy the next piece; whether the copy is level, and durable."""
        rate = self._settings().integer("replica.alter.log.dirs.io.max.bytes.per.second")
        if rate == 0:
            move.not_before_s = self._world.clock.monotonic() + RETRY_S
            return False
        size_bytes = await self._beside(partial(_copy, move, min(COPY_BYTES, rate)))
        move.not_before_s = self._world.clock.monotonic() + size_bytes / rate
        move.failures, move.is_waiting_for_space = 0, False
        assert move.future is not None
        if move.future.end_offset < move.partition.log.end_offset:
            return False
        await self._beside(partial(_flush, move))
        return True

    async def _finish(self, move: Move) -> None:
        """Hold the partition for a moment, and go on in the other directory."""
        await rework(
            move.partition, partial(_become_the_replica, move), partial(self._check, move), partial(self._adopt, move)
        )
        if move.problem is not None:
            problem, move.problem = move.problem, None
            raise problem

    def _check(self, move: Move) -> None:
        if self._is_over(move) or move.wanted is not move.target:
            raise ApiError(Error.REPLICA_NOT_AVAILABLE, "the move was taken back")

    def _adopt(self, move: Move) -> None:
        if move.moved is not None:
            move.partition.log.take_over(move.moved)
            self._partitions.moved(move.partition, move.target)
            del self._moves[move.name]
            self._to_retire[move.name] = self._world.clock.monotonic() + RETIRE_S
            logger.info("%s is in %s now, and not in %s any more", move.name, move.target.path, move.source.path)
        elif move.is_split:
            self._partitions.replica_failed(move.partition, str(move.problem))

    async def _give_up(self, move: Move) -> None:
        """Somebody wants it elsewhere, or it is not here any more; a copy whose source has failed is kept."""
        is_failed = move.partition.is_gone and self._partitions.get(move.name) is move.partition
        if move.target.offline is None and not is_failed:
            await self._beside(partial(move.target.delete_future, move.stored))
        del self._moves[move.name]
        if not self._is_over(move) and move.wanted is not move.source:
            self._moves[move.name] = _new(move.partition, move.source, move.wanted)

    async def _failed(self, move: Move, error: Exception) -> None:
        if isinstance(error, NoSpaceError) or lacks_space(error) or lacks_space(error.__cause__):
            if not move.is_waiting_for_space:
                logger.error("%s: the move to %s waits for space: %s", move.name, move.target.path, error)
            move.is_waiting_for_space = True
            move.not_before_s = self._world.clock.monotonic() + FULL_S
            return
        move.failures += 1
        move.not_before_s = self._world.clock.monotonic() + RETRY_S
        if move.is_split or isinstance(error, OSError) or (move.future is not None and move.future.failure is not None):
            self._partitions.directory_failed(move.target, str(error))
        elif move.failures >= FAILURES_MAX and self._moves.get(move.name) is move:
            logger.error("%s: the move to %s is given up: %s", move.name, move.target.path, error)
            move.wanted = move.source

    async def _beside(self, work: Callable[[], T]) -> T:
        self._working = working = asyncio.ensure_future(self._world.disk.run("delete", work))
        await asyncio.wait([working])
        return working.result()


def _new(partition: Partition, source: LogDirectory, target: LogDirectory) -> Move:
    return Move(partition, source, target, target, target.new_future(partition.name, partition.topic_id))


def _copy(move: Move, max_bytes: int) -> int:
    """Append the next batches to the copy; how many bytes they were. Blocks."""
    log = move.partition.log
    if move.future is None:
        move.future = _open(move)
    future = move.future
    cuts = log.cuts
    if cuts != move.seen_cuts:
        cut_copy(log, future)
        move.seen_cuts = cuts
    size_bytes = copy_batches(log, future, max_bytes)
    move.unflushed_bytes += size_bytes
    if move.unflushed_bytes >= FLUSH_BYTES:
        _flush(move)
    return size_bytes


def _open(move: Move) -> PartitionLog:
    partition, target = move.partition, move.target
    if not move.is_made:
        target.make_future(move.stored, move.source)
        move.is_made = move.is_clean = True
    return target.open_future(move.stored, partition.topic_id, partition.log.config, is_clean=move.is_clean)


def _flush(move: Move) -> None:
    assert move.future is not None
    move.future.flush()
    move.unflushed_bytes = 0


def _become_the_replica(move: Move) -> None:
    """Copy the last piece and rename, while nobody writes to the log. Blocks. What fails is left in the move."""
    partition, target, future = move.partition, move.target, move.future
    assert future is not None
    try:
        while _copy(move, COPY_BYTES):
            pass
        assert future.end_offset == partition.log.end_offset
        future.producers.replace(list(partition.log.producers), future.end_offset)
        move.future, move.is_clean = None, False
        target.finish_future(partition.name, partition.high_watermark)
    except (OSError, ApiError) as error:
        move.problem = error
        return
    try:
        moved = target.promote_future(move.stored, partition.topic_id, partition.log.config)
        if (moved.end_offset, moved.recovery_point) != (future.end_offset, future.end_offset):
            raise ApiError(Error.KAFKA_STORAGE_ERROR, f"{moved.folder} is damaged")
        move.moved = moved
    except (OSError, ApiError) as error:
        move.problem, move.is_split = error, True
