"""Carrying out how transactions end: their markers, written by the leaders of their partitions.

A decision of a shard comes here as `WriteMarkers`, with the markers of one transaction or of thousands. They are sorted
by partition, so that each partition is asked once. Several partitions are written to at the same time, because each may
wait for its own sync. What cannot be written now (the disk, a shard that is still being read) is tried again until it
can be; a partition that has been deleted needs none. As soon as all partitions of a transaction are done the shard is
told, whatever the others wait for.

A shard that is read again begins anew with everything it has decided. So before every write it is asked whether it is
still the same: what another one has started again must not be written by two, because the second marker could come
when the producer's next transaction has begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import Moment, ProducerEpoch, Step
from penstock.base.world import World
from penstock.broker.cluster_view import ClusterView
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.state_log import StateLog
from penstock.broker.state_logs import StateLogs
from penstock.broker.topics import OFFSETS_TOPIC
from penstock.groups.shard import GroupShard
from penstock.transactions.ending import Marker, WriteMarkers
from penstock.transactions.shard import TransactionShard

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S_FIRST = 0.05
RETRY_S_MAX = 2.0
APPENDED_AT_ONCE_MAX = 50  # markers to one partition; then others get their turn
PARTITIONS_AT_ONCE_MAX = 16
COMPLETED_AT_ONCE_MAX = 200  # transactions in one batch of the log of their shard
OVER = (Error.NONE, Error.INVALID_PRODUCER_EPOCH)
"""written, or not needed: the partition knows a newer epoch of the producer, so the transaction is not open there"""


class Ending(NamedTuple):
    """One marker for one partition."""

    producer: ProducerEpoch
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class Markers:
    """See the head of this file."""

    def __init__(
        self,
        world: World,
        view: ClusterView,
        partitions: Partitions,
        groups: Callable[[], StateLogs[GroupShard]],
    ) -> None:
        self._world = world
        self._view = view
        self._partitions = partitions
        self._groups = groups
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, log: StateLog[TransactionShard], action: WriteMarkers) -> None:
        """Begin to carry out a decision of this shard."""
        task = asyncio.get_running_loop().create_task(_Work(self, log, action).run())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("markers could not be written", exc_info=task.exception())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def append(
        self, name: TopicPartition, endings: Sequence[Ending], is_wanted: Callable[[], bool]
    ) -> list[Error]:
        """Write markers into a partition that is led here; what became of each, once they are committed.

        `is_wanted` is asked when its turn has come; what is not wanted any more is not written.
        """
        try:
            if name.topic == OFFSETS_TOPIC:
                return await self._append_to_groups(name.partition, endings, is_wanted)
            return await self._append_to(self._partitions.find(*name), endings, is_wanted)
        except ApiError as refused:
            return [refused.error for _ in endings]

    async def _append_to_groups(
        self, index: int, endings: Sequence[Ending], is_wanted: Callable[[], bool]
    ) -> list[Error]:
        log = self._groups().at(index)
        appending = [
            log.append_marker(
                each.producer,
                is_commit=each.is_commit,
                coordinator_epoch=each.coordinator_epoch,
                transaction_version=each.transaction_version,
                is_wanted=is_wanted,
            )
            for each in endings
        ]
        outcomes = await asyncio.gather(*appending, return_exceptions=True)
        return [_error_of(outcome) for outcome in outcomes]

    async def _append_to(
        self, partition: Partition, endings: Sequence[Ending], is_wanted: Callable[[], bool]
    ) -> list[Error]:
        def append_some(some: Sequence[Ending]) -> list[Error]:
            return [self._append_one(partition, each) if is_wanted() else Error.NOT_COORDINATOR for each in some]

        outcomes: list[Error] = []
        for start in range(0, len(endings), APPENDED_AT_ONCE_MAX):
            some = endings[start : start + APPENDED_AT_ONCE_MAX]
            outcomes += await partition.in_turn(partial(append_some, some))
            await asyncio.sleep(0)  # markers of thousands of producers must not hold up the loop
        error = await _until_committed(partition) if Error.NONE in outcomes else Error.NONE
        return [error if outcome is Error.NONE else outcome for outcome in outcomes]

    def _append_one(self, partition: Partition, ending: Ending) -> Error:
        try:
            partition.append_marker(
                ending.producer,
                is_commit=ending.is_commit,
                coordinator_epoch=ending.coordinator_epoch,
                transaction_version=ending.transaction_version,
                now_ms=self._world.clock.wall_ms(),
            )
        except ApiError as refused:
            return refused.error
        return Error.NONE

    def is_deleted(self, name: TopicPartition) -> bool:
        """Whether the cluster has no such partition."""
        topic = self._view.topics.get(name.topic)
        return topic is None or name.partition >= len(topic.partitions)


class _Work:
    """One decision, until it is carried out."""

    def __init__(self, markers: Markers, log: StateLog[TransactionShard], action: WriteMarkers) -> None:
        self._markers = markers
        self._log = log
        self._machine = log.machine
        self._coordinator_epoch = action.coordinator_epoch
        self._missing: dict[str, set[TopicPartition]] = {}
        self._of_partition: dict[TopicPartition, list[Marker]] = {}
        self._done: list[Marker] = []
        self._writing = asyncio.Semaphore(PARTITIONS_AT_ONCE_MAX)
        for marker in action.markers:
            self._missing[marker.transactional_id] = set(marker.partitions)
            for name in sorted(marker.partitions):
                self._of_partition.setdefault(name, []).append(marker)

    async def run(self) -> None:
        delay_s = RETRY_S_FIRST
        while self._of_partition and self._is_wanted():
            await asyncio.gather(*map(self._write, list(self._of_partition)))
            if self._of_partition:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_S_MAX)

    def _is_wanted(self) -> bool:
        return self._log.machine is self._machine and self._log.is_loaded

    async def _write(self, name: TopicPartition) -> None:
        waiting = self._of_partition[name]
        endings = [Ending(each.producer, each.is_commit, self._coordinator_epoch, each.protocol) for each in waiting]
        async with self._writing:
            if self._markers.is_deleted(name):
                outcomes = [Error.NONE for _ in waiting]
            else:
                outcomes = await self._markers.append(name, endings, self._is_wanted)
        self._note(name, waiting, outcomes)
        self._tell()

    def _note(self, name: TopicPartition, waiting: Sequence[Marker], outcomes: Sequence[Error]) -> None:
        """What became of the markers of a partition."""
        left = []
        for marker, outcome in zip(waiting, outcomes, strict=True):
            if outcome in OVER:
                self._note_done(marker, name)
            elif outcome is Error.TRANSACTION_COORDINATOR_FENCED:
                logger.warning("%s: another coordinator ends the transaction of %s", name, marker.transactional_id)
            else:
                left.append(marker)
        if left:
            logger.warning("%s: %d markers wait: %s", name, len(left), outcomes[0].name)
            self._of_partition[name] = left
        else:
            del self._of_partition[name]

    def _note_done(self, marker: Marker, name: TopicPartition) -> None:
        missing = self._missing[marker.transactional_id]
        missing.discard(name)
        if not missing:
            self._done.append(marker)

    def _tell(self) -> None:
        while self._done and self._is_wanted():
            some, self._done = self._done[:COMPLETED_AT_ONCE_MAX], self._done[COMPLETED_AT_ONCE_MAX:]
            self._log.do(_completing(some))


def _completing(markers: Sequence[Marker]) -> Callable[[TransactionShard, Moment], Step]:
    return lambda machine, now: machine.markers_written(markers, now)


async def _until_committed(partition: Partition) -> Error:
    """Wait for all that is in the log now; what came of it."""
    if partition.is_gone:
        return Error.NOT_LEADER_OR_FOLLOWER
    end_offset = partition.log.end_offset
    if partition.high_watermark >= end_offset:
        return Error.NONE
    committed: asyncio.Future[Error] = asyncio.get_running_loop().create_future()
    partition.when_committed(end_offset, partial(_resolve, committed))
    return await committed


def _resolve(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _error_of(outcome: BaseException | None) -> Error:
    if outcome is None:
        return Error.NONE
    if isinstance(outcome, ApiError):
        return outcome.error
    raise outcome
