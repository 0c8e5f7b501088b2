"""Compacts the logs of this broker, the dirtiest first: leaders and followers alike, each broker its own copies.

Every `log.cleaner.backoff.ms`, and whenever a round is over, the logs with `cleanup.policy=compact` are looked at. As
many rounds as `log.cleaner.threads` says are under way at the same time. A round goes in small steps in a thread of its
own; the loop starts each and has its turn in between, and so has whoever limits the speed. Why it is a thread and not a
process, and what that costs a producer, is in decision 13.

A log that is damaged is left alone until the next start. One for which there is no room waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from penstock.base.identifiers import TopicPartition
from penstock.base.settings import Settings
from penstock.base.world import NoSpaceError, World, lacks_space
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.log.compaction import Compaction, CompactionError, CompactionLimits, Exchange
from penstock.log.compaction_plan import CompactionPlan, plan_compaction
from penstock.log.scan import DamagedLog

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_S_MIN = 0.05
STEP_BYTES_MIN = 16 * 1024
PAUSED_S = 1.0
SLICE = 100  # logs that are looked at before others get their turn


@dataclass(slots=True)
class CompactionCounts:
    """What metrics tell of compaction, since the start."""

    rounds: int = 0
    failed_rounds: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    removed_records: int = 0
    dirtiest_ratio: float = 0.0
    due: int = 0


class _Abandoned(Exception):
    """The log has changed so that the round cannot go on, or the broker stops."""


class Compactor:
    """See the head of this file."""

    def __init__(self, world: World, partitions: Partitions, settings: Callable[[], Settings]) -> None:
        self.counts = CompactionCounts()
        self.left_alone: dict[Partition, str] = {}  # damaged ones, and why
        self._world = world
        self._partitions = partitions
        self._settings = settings
        self._running: dict[Partition, asyncio.Future[None]] = {}
        self._not_before_s: dict[TopicPartition, float] = {}
        self._paid_until_s = 0.0  # by then the bytes so far fit the speed that is allowed
        self._is_stopping = False
        self._looking: asyncio.Future[None] | None = None

    def start(self) -> None:
        if self._settings().flag("log.cleaner.enable"):
            self._looking = asyncio.ensure_future(self._look_forever())

    async def stop(self) -> None:
        """Give up what is under way; what was exchanged stays."""
        self._is_stopping = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        if self._running:
            await asyncio.wait(list(self._running.values()))

    @property
    def running(self) -> int:
        return len(self._running)

    # ── which log is next ────────────────────────────────────────────────────────────────────────────────────────

    async def _look_forever(self) -> None:
        while True:
            backoff_s = max(LOOK_S_MIN, self._settings().integer("log.cleaner.backoff.ms") / 1000)
            if self._running:
                await asyncio.wait(list(self._running.values()), timeout=backoff_s, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(backoff_s)
            try:
                await self.look()
            except Exception:
                logger.exception("logs cannot be looked at for compaction")

    async def look(self) -> None:
        """Begin rounds for the dirtiest logs that are due, as many as may be under way."""
        due = await self._due()
        threads = self._settings().integer("log.cleaner.threads")
        for partition, plan in due[: max(0, threads - len(self._running))]:
            if partition not in self._running and not partition.is_gone:
                self._running[partition] = asyncio.ensure_future(self._round(partition, plan))

    async def _due(self) -> list[tuple[Partition, CompactionPlan]]:
        now_ms, now_s = self._world.clock.wall_ms(), self._world.clock.monotonic()
        due: list[tuple[Partition, CompactionPlan]] = []
        dirtiest_ratio = 0.0
        partitions = list(self._partitions)
        self._forget_gone(set(partitions))
        for number, partition in enumerate(partitions):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            log = partition.log
            if not log.config.compacts or partition.is_gone or partition in self.left_alone:
                continue
            plan = plan_compaction(log, last_stable_offset=partition.last_stable_offset, now_ms=now_ms)
            if partition not in self._running:
                dirtiest_ratio = max(dirtiest_ratio, plan.dirty_ratio)
            if plan.is_due(log.config) and self._not_before_s.get(partition.name, 0.0) <= now_s:
                due.append((partition, plan))
        self.counts.dirtiest_ratio = dirtiest_ratio
        self.counts.due = len(due)
        due = [(partition, plan) for partition, plan in due if partition not in self._running]
        due.sort(key=lambda pair: pair[1].dirty_ratio, reverse=True)
        return due

    def _forget_gone(self, partitions: set[Partition]) -> None:
        self.left_alone = {each: why for each, why in self.left_alone.items() if each in partitions}
        names = {partition.name for partition in partitions}
        self._not_before_s = {name: at_s for name, at_s in self._not_before_s.items() if name in names}

    # ── one round ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _round(self, partition: Partition, plan: CompactionPlan) -> None:
        try:
            await self._compact(partition, plan)
        except _Abandoned:
            self._hold_back(partition)
        except (DamagedLog, CompactionError) as error:
            self.counts.failed_rounds += 1
            if partition.is_gone or partition.log.failure is not None:
                return
            self.left_alone[partition] = str(error)
            logger.error("%s is not compacted any more until a restart: %s", partition.name, error)
        except OSError as error:
            self._disk_failed(partition, error)
        except Exception:
            self.counts.failed_rounds += 1
            self._hold_back(partition)
            logger.exception("%s: a compaction failed", partition.name)
        finally:
            del self._running[partition]

    def _hold_back(self, partition: Partition) -> None:
        backoff_s = max(LOOK_S_MIN, self._settings().integer("log.cleaner.backoff.ms") / 1000)
        self._not_before_s[partition.name] = self._world.clock.monotonic() + backoff_s

    def _disk_failed(self, partition: Partition, error: OSError) -> None:
        if partition.is_gone:
            return
        self.counts.failed_rounds += 1
        if lacks_space(error):
            self._hold_back(partition)
            logger.error("%s: compaction waits for space: %s", partition.name, error)
        else:
            partition.storage_failed(f"compaction of {partition.log.folder} failed: {error}")

    async def _compact(self, partition: Partition, plan: CompactionPlan) -> None:
        log, settings = partition.log, self._settings()
        if not self._has_room(partition, plan):
            raise _Abandoned
        threads = max(1, settings.integer("log.cleaner.threads"))
        limits = CompactionLimits(
            map_bytes=settings.integer("log.cleaner.dedupe.buffer.size") // threads,
            load_factor=max(0.01, settings.number("log.cleaner.io.buffer.load.factor")),
            seed=self._world.random.randbytes(16),
        )
        cuts = log.cuts
        compaction = Compaction(log, plan, limits, self._world.clock.wall_ms())
        try:
            while not compaction.is_done:
                await self._step(partition, compaction, threads)
                if compaction.exchange is not None:
                    await self._exchange(partition, compaction.exchange)
                    compaction.exchanged()
        except BaseException:
            await self._beside(compaction.abandon)
            raise
        finally:
            self.counts.read_bytes += compaction.read_bytes
            self.counts.written_bytes += compaction.written_bytes
        if log.cuts != cuts or partition.is_gone:
            raise _Abandoned
        log.cleaned_offset = compaction.cleaned_offset
        await self._done(partition, plan, compaction)

    def _has_room(self, partition: Partition, plan: CompactionPlan) -> bool:
        """A segment is written beside those that it replaces, and the reserve of the disk is not for that."""
        directory = self._partitions.directory_of(partition)
        wanted = min(plan.clean_bytes + plan.dirty_bytes, partition.log.config.segment_bytes)
        has_room = directory.has_room(self._settings().integer("log.dirs.reserve.bytes") + wanted)
        if not has_room:
            logger.warning("%s: compaction waits for space in %s", partition.name, directory.path)
        return has_room

    async def _step(self, partition: Partition, compaction: Compaction, threads: int) -> None:
        if self._is_stopping or partition.is_gone or not partition.log.config.compacts:
            raise _Abandoned
        rate = self._settings().number("log.cleaner.io.max.bytes.per.second")
        if rate < 1:
            await asyncio.sleep(PAUSED_S)
            return
        size_bytes = max(STEP_BYTES_MIN, self._settings().integer("log.cleaner.io.buffer.size") // threads)
        try:
            done_bytes = await self._beside(partial(compaction.step, size_bytes))
        except (DamagedLog, CompactionError, FileNotFoundError) as error:
            if compaction.is_overtaken:
                raise _Abandoned from error
            raise
        now_s = self._world.clock.monotonic()
        self._paid_until_s = max(now_s, self._paid_until_s) + done_bytes / rate
        while (wait_s := self._paid_until_s - self._world.clock.monotonic()) > LOOK_S_MIN and not self._is_stopping:
            await asyncio.sleep(min(wait_s, PAUSED_S))

    async def _exchange(self, partition: Partition, exchange: Exchange) -> None:
        """Put a segment in the place of others, while appends go on and nothing is cut or deleted."""
        while partition.is_reworking:
            await partition.sync_is_over()
        if partition.is_gone or not exchange.adopt():
            await self._beside(exchange.discard)
            raise _Abandoned

        def ended(_: asyncio.Future[None]) -> None:
            partition.exchange = None
            if exchange.was_undone:
                exchange.give_back()

        partition.exchange = working = asyncio.ensure_future(self._world.disk.run("sync", exchange.run))
        working.add_done_callback(ended)
        await asyncio.wait([working])
        working.result()
        if exchange.was_undone:
            raise _Abandoned
        self._partitions.removed_bytes["compaction"] += exchange.removed_bytes

    async def _done(self, partition: Partition, plan: CompactionPlan, compaction: Compaction) -> None:
        removed = compaction.removed
        self.counts.rounds += 1
        self.counts.removed_records += removed.total
        self._partitions.record(
            "log_compacted",
            partition=partition.name,
            from_offset=compaction.first_offset,
            to_offset=compaction.cleaned_offset,
            size_bytes=compaction.removed_bytes,
            records=removed.total,
            why="compaction",
        )
        logger.info(
            "%s: compacted offsets %d to %d: deleted %d of %d bytes; records deleted: %s",
            partition.name,
            compaction.first_offset,
            compaction.cleaned_offset - 1,
            compaction.removed_bytes,
            plan.clean_bytes + plan.dirty_bytes,
            removed,
        )
        try:
            await self._world.disk.run("sync", self._partitions.directory_of(partition).write_offsets)
        except NoSpaceError:
            pass  # the next checkpoint says it

    async def _beside(self, work: Callable[[], T]) -> T:
        """In another thread; to its end, even if the broker stops meanwhile."""
        awaitable: Awaitable[T] = self._world.disk.run("compact", work)
        working = asyncio.ensure_future(awaitable)
        await asyncio.wait([working])
        return working.result()
