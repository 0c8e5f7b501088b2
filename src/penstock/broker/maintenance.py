"""What a broker does by the clock: flush, retain, checkpoint, watch the disk, forget idle producers, remove what was
deleted. One loop for each rhythm; a failure in one partition is logged and does not stop the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from penstock.base.errors import ApiError
from penstock.base.identifiers import TopicPartition
from penstock.base.world import NoSpaceError
from penstock.broker.broker import Broker
from penstock.broker.partition import Partition
from penstock.broker.partition_config import PartitionConfig, partition_config
from penstock.log.log_directory import LogDirectory

logger = logging.getLogger(__name__)

DISK_CHECK_S = 1.0
FLUSH_CHECK_S = 0.5
DELETED_CHECK_S = 5.0
UNOPENED_CHECK_S = 2.0
DELETIONS_CHECK_S = 30.0
SCRUB_S = 1.0
SCRUB_BYTES = 8 * 1024 * 1024  # at a time: slow enough to disturb nobody


class Maintenance:
    """The background work of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._full: set[str] = set()

    def start(self) -> list[asyncio.Future[None]]:
        """Begin all of it; the caller cancels what is returned."""

        def every_ms(name: str) -> Callable[[], float]:
            return lambda: self._broker.settings.integer(name) / 1000

        rhythms: list[tuple[Callable[[], float], Callable[[], Awaitable[None]]]] = [
            (lambda: DISK_CHECK_S, self.check_disks),
            (lambda: FLUSH_CHECK_S, self.flush_due),
            (lambda: UNOPENED_CHECK_S, self.open_again),
            (every_ms("log.retention.check.interval.ms"), self.retain),
            (every_ms("log.flush.offset.checkpoint.interval.ms"), self.checkpoint),
            (every_ms("log.flush.start.offset.checkpoint.interval.ms"), self.checkpoint),
            (every_ms("replica.high.watermark.checkpoint.interval.ms"), self.checkpoint_high_watermarks),
            (every_ms("producer.id.expiration.check.interval.ms"), self.expire_producers),
            (lambda: DELETED_CHECK_S, self.remove_deleted),
            (lambda: SCRUB_S, self.scrub),
            (lambda: DELETIONS_CHECK_S, self.finish_deletions),
        ]
        return [asyncio.ensure_future(self._forever(period_s, work)) for period_s, work in rhythms]

    async def _forever(self, period_s: Callable[[], float], work: Callable[[], Awaitable[None]]) -> None:
        first_s = self._broker.settings.integer("log.initial.task.delay.ms") / 1000
        await asyncio.sleep(min(first_s, period_s()))
        lacked_space = False
        while True:
            try:
                await work()
                lacked_space = False
            except NoSpaceError as error:
                if not lacked_space:
                    logger.error("%s waits for space: %s", work.__name__, error)
                lacked_space = True
            except (OSError, ApiError) as error:
                logger.error("%s failed: %s", work.__name__, error)
            except Exception:
                logger.exception("%s failed", work.__name__)
            await asyncio.sleep(period_s())

    async def check_disks(self) -> None:
        """Refuse produces before a disk is full, and take them again when there is space; give up one that fails."""
        partitions = self._broker.partitions
        reserve_bytes = self._broker.settings.integer("log.dirs.reserve.bytes")
        for directory in partitions.directories:
            if directory.offline is not None:
                continue
            failures = [log.failure for log in directory.logs.values() if log.failure is not None]
            if failures:
                partitions.directory_failed(directory, failures[0])
                continue
            has_room = directory.has_room(reserve_bytes)
            if has_room is (directory.path in self._full):
                self._disk_changed(directory, has_room)
                self._tell_partitions(directory, has_room)
            elif not has_room:
                self._tell_partitions(directory, has_room)  # some may be new since the last look

    def _disk_changed(self, directory: LogDirectory, has_room: bool) -> None:
        if has_room:
            self._full.discard(directory.path)
            logger.warning("%s has space again: produces are taken", directory.path)
        else:
            self._full.add(directory.path)
            logger.error("%s is nearly full: produces are refused until there is space", directory.path)

    def _tell_partitions(self, directory: LogDirectory, has_room: bool) -> None:
        for partition in self._broker.partitions:
            if self._broker.partitions.directory_of(partition) is directory:
                partition.takes_writes = has_room

    async def open_again(self) -> None:
        """Open the partitions that could not be opened for lack of space."""
        broker = self._broker

        def config_of(topic: str) -> PartitionConfig:
            return partition_config(broker.topics.settings_of(topic), broker.settings)

        names = sorted(broker.partitions.without_room)
        await broker.partitions.follow(names, config_of, may_lead=broker.membership.is_admitted)

    async def flush_due(self) -> None:
        now_ms = self._broker.world.clock.wall_ms()
        for partition in self._broker.partitions:
            partition.flush_if_due(now_ms)

    async def retain(self) -> None:
        """Roll segments whose time has come, and delete those that are past their time or size."""
        for partition in list(self._broker.partitions):
            if partition.is_gone or partition.is_syncing:
                continue
            for work in (self._roll_if_due, self._broker.partitions.apply_retention):
                try:
                    await work(partition)
                except (OSError, ApiError) as error:
                    logger.error("%s: retention failed: %s", partition.name, error)
                except Exception:
                    logger.exception("%s: retention failed", partition.name)
            await asyncio.sleep(0)  # with thousands of partitions others must get their turn in between

    async def _roll_if_due(self, partition: Partition) -> None:
        partition.log.roll_if_due(self._broker.world.clock.wall_ms())

    async def checkpoint(self) -> None:
        """Write down how far each log is synced and where it starts."""
        for directory in self._broker.partitions.directories:
            if directory.offline is None:
                await self._write(directory, directory.write_offsets)

    async def checkpoint_high_watermarks(self) -> None:
        marks: dict[LogDirectory, dict[TopicPartition, int]] = {}
        for partition in self._broker.partitions:
            directory = self._broker.partitions.directory_of(partition)
            marks.setdefault(directory, {})[partition.name] = partition.high_watermark
        for directory, high_watermarks in marks.items():
            if directory.offline is None:
                await self._write(directory, partial(directory.write_high_watermarks, high_watermarks))

    async def _write(self, directory: LogDirectory, write: Callable[[], None]) -> None:
        """A folder in which not even a small file can be written, for another reason than space, has failed."""
        try:
            await self._broker.world.disk.run("sync", write)
        except NoSpaceError:
            raise
        except OSError as error:
            self._broker.partitions.directory_failed(directory, str(error))

    async def scrub(self) -> None:
        """Check a little of what nobody has read since the start."""
        room_bytes = SCRUB_BYTES
        for partition in list(self._broker.partitions):
            while room_bytes > 0 and not partition.is_gone and partition.scrub.has_work:
                done = await self._broker.world.disk.run("read", partial(partition.scrub.step, room_bytes))
                room_bytes -= done.size_bytes
                if done.problem is not None:
                    partition.record(
                        "corruption_found", partition=partition.name, problem=done.problem, found_by="a check"
                    )
                    logger.error("%s: a stored range is bad and is not served: %s", partition.name, done.problem)

    async def expire_producers(self) -> None:
        now_ms = int(self._broker.world.clock.monotonic() * 1000)
        expiration_ms = self._broker.settings.integer("producer.id.expiration.ms")
        for partition in list(self._broker.partitions):
            partition.log.producers.expire(now_ms, expiration_ms)
            await asyncio.sleep(0)

    async def finish_deletions(self) -> None:
        """Of topics whose deletion was held up: a disk, or the coordination service, was out of reach."""
        await self._broker.topics.finish_deletions()

    async def remove_deleted(self) -> None:
        """Remove the folders of deleted partitions."""
        for directory in self._broker.partitions.directories:
            if directory.offline is None:
                for folder in directory.deleted_folders():
                    await self._broker.world.disk.run("delete", partial(directory.remove_deleted, folder))
