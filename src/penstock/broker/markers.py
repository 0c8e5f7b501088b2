"""Carrying out how transactions end: their markers, written by the leaders of their partitions.

A decision of a shard comes here as `WriteMarkers`, with the markers of one transaction or of thousands. They are sorted
by partition, so that each partition is asked once: here, or through the broker that leads it (`marker_post.py`).
Partitions do not wait for each other, because each may wait for its own sync or for its own leader. What cannot be
written now (the disk, a shard that is still being read, a leader that has moved) is tried again until it can be, and at
once when the cluster has changed; a partition that has been deleted needs none. As soon as all partitions of a
transaction are done the shard is told, whatever the others wait for.

A shard that is read again begins anew with everything it has decided. So before every write it is asked whether it is
still the same, and it waits until what its former self has sent is answered: what another one has started again must
not be written by two, because the second marker could come when the producer's next transaction has begun. A shard that
has moved to another broker has a new epoch, by which partitions know the markers of the old one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import Moment, Step
from penstock.base.world import World
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.marker_post import Ending as Ending
from penstock.broker.marker_post import MarkerPost
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.peers import Peers
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
COMPLETED_AT_ONCE_MAX = 200  # transactions in one batch of the log of their shard
OVER = (Error.NONE, Error.INVALID_PRODUCER_EPOCH)
"""written, or not needed: the partition knows a newer epoch of the producer, so the transaction is not open there"""


class Markers:
    """See the head of this file."""

    def __init__(
        self,
        world: World,
        node_id: int,
        view: ClusterView,
        partitions: Partitions,
        groups: Callable[[], StateLogs[GroupShard]],
        peers: Peers,
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._view = view
        self._partitions = partitions
        self._groups = groups
        self._post = MarkerPost(peers)
        self._works: dict[asyncio.Task[None], _Work] = {}
        self._view_change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        view.on_change(self._view_changed)

    def write(self, log: StateLog[TransactionShard], action: WriteMarkers) -> None:
        """Begin to carry out a decision of this shard."""
        work = _Work(self, log, action)
        former = []
        if log.was_read_again:
            former = [task for task, other in self._works.items() if other.is_former(work)]
        task = asyncio.get_running_loop().create_task(work.run(former))
        self._works[task] = work
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._works[task]
        if not task.cancelled() and task.exception() is not None:
            logger.error("markers could not be written", exc_info=task.exception())

    async def stop(self) -> None:
        for task in self._works:
            task.cancel()
        if self._works:
            await asyncio.wait(self._works)
        await self._post.stop()

    # ── where ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def write_to(
        self, name: TopicPartition, endings: Sequence[Ending], is_wanted: Callable[[], bool]
    ) -> list[Error]:
        """Write markers into a partition, whoever leads it; what became of each."""
        leader_id = self._view.topics[name.topic].partitions[name.partition].leader
        if leader_id == self._node_id:
            return await self.append(name, endings, is_wanted)
        if leader_id not in self._view.brokers:
            return [Error.LEADER_NOT_AVAILABLE for _ in endings]
        return await self._post.send(leader_id, name, endings, is_wanted)

    def is_deleted(self, name: TopicPartition) -> bool:
        """Whether the cluster, as far as this broker knows it, has no such partition."""
        topic = self._view.topics.get(name.topic)
        return topic is None or name.partition >= len(topic.partitions)

    async def read_newest(self) -> None:
        """Let this broker know all topics that there are now."""
        await self._view.refresh()

    async def until_change(self, timeout_s: float) -> bool:
        """Whether the cluster has changed within a time; then it is worth a try."""
        changed, _ = await asyncio.wait([self._view_change], timeout=timeout_s)
        return bool(changed)

    async def _view_changed(self, _change: ViewChange) -> None:
        told, self._view_change = self._view_change, asyncio.get_running_loop().create_future()
        told.set_result(None)

    # ── here ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def append(
        self, name: TopicPartition, endings: Sequence[Ending], is_wanted: Callable[[], bool]
    ) -> list[Error]:
        """Write markers into a partition that is led here; what became of each, once they are committed.

        `is_wanted` is asked when its turn has come; what is not wanted any more is not written.
        """
        try:
            if name.topic == OFFSETS_TOPIC:
                return await self._append_to_groups(name.partition, endings, is_wanted)
            return await self._append_to(self._partitions.find_led(*name), endings, is_wanted)
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
        epoch = partition.epoch

        def append_some(some: Sequence[Ending]) -> list[Error]:
            if partition.epoch != epoch:
                raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
            partition.check_enough_in_sync()
            return [self._append_one(partition, each) if is_wanted() else Error.NOT_COORDINATOR for each in some]

        outcomes: list[Error] = []
        for start in range(0, len(endings), APPENDED_AT_ONCE_MAX):
            some = endings[start : start + APPENDED_AT_ONCE_MAX]
            outcomes += await partition.in_turn(partial(append_some, some))
            await asyncio.sleep(0)  # markers of thousands of producers must not hold up the loop
        error = await _until_committed(partition, epoch) if Error.NONE in outcomes else Error.NONE
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
        self._reading: asyncio.Future[None] | None = None
        self._complained: set[TopicPartition] = set()
        for marker in action.markers:
            self._missing[marker.transactional_id] = set(marker.partitions)
            for name in sorted(marker.partitions):
                self._of_partition.setdefault(name, []).append(marker)

    def is_former(self, other: _Work) -> bool:
        """Whether this is what the shard of the other began before it was read again."""
        return self._log is other._log and self._machine is not other._machine

    async def run(self, former: Sequence[asyncio.Task[None]]) -> None:
        if former:
            await asyncio.wait(former)
        await asyncio.gather(*map(self._write_until_done, list(self._of_partition)))

    def _is_current(self) -> bool:
        return self._log.machine is self._machine and self._log.is_loaded and not self._log.is_over

    def _is_wanted(self) -> bool:
        return self._log.machine is self._machine and self._log.may_act

    async def _write_until_done(self, name: TopicPartition) -> None:
        delay_s = RETRY_S_FIRST
        while self._is_current():
            self._note(name, await self._write(name))
            self._tell()
            if name not in self._of_partition:
                return
            if await self._markers.until_change(delay_s):
                delay_s = RETRY_S_FIRST
            else:
                delay_s = min(2 * delay_s, RETRY_S_MAX)

    async def _write(self, name: TopicPartition) -> list[Error]:
        waiting = self._of_partition[name]
        if self._markers.is_deleted(name):
            await self._read_newest()
            if self._markers.is_deleted(name):
                outcome = Error.NONE if self._knows_newest else Error.UNKNOWN_TOPIC_OR_PARTITION
                return [outcome for _ in waiting]
        endings = [Ending(each.producer, each.is_commit, self._coordinator_epoch, each.protocol) for each in waiting]
        return await self._markers.write_to(name, endings, self._is_wanted)

    @property
    def _knows_newest(self) -> bool:
        reading = self._reading
        return reading is not None and reading.done() and not reading.cancelled() and reading.exception() is None

    async def _read_newest(self) -> None:
        """A topic that this broker does not know may be newer than what it knows. Once is enough: the shard has known
        it before."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._markers.read_newest())
        await asyncio.wait([self._reading])
        if not self._knows_newest:
            self._reading = None

    def _note(self, name: TopicPartition, outcomes: Sequence[Error]) -> None:
        """What became of the markers of a partition."""
        left = []
        for marker, outcome in zip(self._of_partition[name], outcomes, strict=True):
            if outcome in OVER:
                self._note_done(marker, name)
            elif outcome is Error.TRANSACTION_COORDINATOR_FENCED:
                logger.warning("%s: another coordinator ends the transaction of %s", name, marker.transactional_id)
            else:
                left.append(marker)
        if left:
            level = logging.INFO if name in self._complained else logging.WARNING
            logger.log(level, "%s: %d markers wait: %s", name, len(left), outcomes[0].name)
            self._complained.add(name)
            self._of_partition[name] = left
        else:
            del self._of_partition[name]

    def _note_done(self, marker: Marker, name: TopicPartition) -> None:
        missing = self._missing[marker.transactional_id]
        missing.discard(name)
        if not missing:
            self._done.append(marker)

    def _tell(self) -> None:
        while self._done and self._is_current():
            some, self._done = self._done[:COMPLETED_AT_ONCE_MAX], self._done[COMPLETED_AT_ONCE_MAX:]
            self._log.do(_completing(some))


def _completing(markers: Sequence[Marker]) -> Callable[[TransactionShard, Moment], Step]:
    return lambda machine, now: machine.markers_written(markers, now)


async def _until_committed(partition: Partition, epoch: int) -> Error:
    """Wait for all that is in the log now; what came of it."""
    if partition.is_gone or partition.leader is None or partition.epoch != epoch:
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
