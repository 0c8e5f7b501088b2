"""One partition that this broker serves: the owner of its log and of its leader's state, and of who waits on it.

A produce that waits for replication or for a sync, and a fetch that waits for bytes, register a callback here and are
woken by what they wait for; nothing polls.

While the active segment is being synced the partition takes no appends (`is_syncing`): a write to a file under fsync
can block the whole loop, and in `flush.mode=always` those who come meanwhile share the next sync anyway (group commit).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.base.world import Disk, NoSpaceError
from penstock.broker.partition_config import PartitionConfig
from penstock.broker.verification import Verifications
from penstock.log.flush import FlushPlan
from penstock.log.partition_log import Appended, PartitionLog
from penstock.log.producers import ALL_STABLE
from penstock.log.scrub import Scrub
from penstock.replication.leader import Leader
from penstock.wire.batch import BatchHeader
from penstock.wire.control import ControlType

logger = logging.getLogger(__name__)

T = TypeVar("T")


class FetchWait(Protocol):
    """A fetch that waits for something to happen in any of its partitions."""

    def on_bytes(self, size_bytes: int) -> None:
        """So many more bytes can be read now."""

    def on_change(self) -> None:
        """Something that must be told now: an error, or that the partition is gone."""


class Partition:
    """See the head of this file."""

    __slots__ = (
        "_commit_waits",
        "_disk",
        "_is_sync_planned",
        "_lacks_space",
        "_on_storage_failure",
        "_plan",
        "_sync",
        "_uncommitted_bytes",
        "_writable_waits",
        "config",
        "fetch_waits",
        "is_gone",
        "is_syncing",
        "leader",
        "log",
        "name",
        "scrub",
        "stable_waits",
        "takes_at_once",
        "takes_writes",
        "topic_id",
        "verifications",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        log: PartitionLog,
        config: PartitionConfig,
        leader: Leader,
        disk: Disk,
        on_storage_failure: Callable[[Partition, ApiError], None],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.scrub = Scrub(log)
        self.leader = leader
        log.producers.high_watermark_moved(log.end_offset)
        self.takes_writes = True  # False while the disk is nearly full, and for ever once the partition is gone
        self.is_syncing = False
        self.config = config
        self.is_gone = False
        self.takes_at_once = self._would_take_at_once  # a batch can be appended as it is, now, and counts at once
        self.fetch_waits: dict[FetchWait, None] = {}
        self.stable_waits: dict[FetchWait, int] = {}  # of readers of committed records: the last stable offset they saw
        self._commit_waits: list[tuple[int, Callable[[Error], None]]] = []
        self._writable_waits: list[Callable[[], None]] = []
        self._uncommitted_bytes = 0  # appended, and waiting for a sync to count
        self._is_sync_planned = False
        self._lacks_space = False  # the last sync found no room for what belongs to it
        self._sync: asyncio.Future[None] | None = None
        self._plan: FlushPlan | None = None
        self._disk = disk
        self._on_storage_failure = on_storage_failure
        self.verifications = Verifications()

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """What read_committed readers may see: nothing at or after the first unstable transaction."""
        return self.stable_below(self.leader.high_watermark)

    def stable_below(self, high_watermark: int) -> int:
        """The same, where the high watermark has been read before: what is appended since begins after it.

        So other threads may ask, too.
        """
        first_unstable = self.log.producers.first_unstable_offset
        return high_watermark if first_unstable >= high_watermark else max(first_unstable, self.log.start_offset)

    def check_epoch(self, known_epoch: int) -> None:
        """Fence both ways: a client that names a leader epoch must know the current one."""
        if 0 <= known_epoch < self.leader.epoch:
            raise ApiError(Error.FENCED_LEADER_EPOCH)
        if known_epoch > self.leader.epoch:
            raise ApiError(Error.UNKNOWN_LEADER_EPOCH)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch not above this one, where it ends); (-1, -1) if the log cannot tell."""
        if epoch == self.leader.epoch:
            return epoch, self.log.end_offset
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    @property
    def _would_take_at_once(self) -> bool:
        mode = self.config.log.flush_mode
        return not (self.is_syncing or self.is_gone or self.config.inside or mode == "always")

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Append one checked batch as the leader. The caller has seen to it that no sync is under way."""
        assert not self.is_syncing
        if not self.takes_writes:
            if self.is_gone:
                raise ApiError(Error.KAFKA_STORAGE_ERROR, "the partition is not served here any more")
            raise ApiError(Error.KAFKA_STORAGE_ERROR, "the disk is nearly full; produces wait for space")
        log = self.log
        appended = log.append_as_leader(batch, header, self.leader.epoch, now_ms)
        if not appended.duplicate:
            self._grew(len(batch))
        return appended

    def append_own(self, batch: memoryview, now_ms: int) -> Appended:
        """Append a batch that this broker made itself. It may use the reserve of a nearly full disk."""
        assert not self.is_syncing
        if self.is_gone:
            raise ApiError(Error.KAFKA_STORAGE_ERROR, "the partition is not served here any more")
        appended = self.log.append_own(batch, self.leader.epoch, now_ms)
        self._grew(len(batch))
        return appended

    def append_marker(
        self,
        producer: ProducerEpoch,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> Appended:
        """End the transaction of a producer in this partition; ApiError if a newer producer or coordinator is known."""
        assert not self.is_syncing
        if self.is_gone:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        size_bytes = self.log.size_bytes
        appended = self.log.append_marker(
            ControlType.COMMIT if is_commit else ControlType.ABORT,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=self.leader.epoch,
            now_ms=now_ms,
            transaction_version=transaction_version,
        )
        self.verifications.forget(producer.producer_id)
        self._grew(self.log.size_bytes - size_bytes)
        return appended

    def _grew(self, size_bytes: int) -> None:
        """The log has so many bytes more: they count as committed, now or once they are synced."""
        log = self.log
        if log.config.flush_mode == "always":
            self._uncommitted_bytes += size_bytes
            self._sync_soon()
        else:
            end_offset = log.end_offset
            if self.leader.local_log_moved(end_offset) and (
                self.fetch_waits or self.stable_waits or self._commit_waits or log.producers.decided
            ):
                self._committed(size_bytes)
            if end_offset - log.recovery_point >= log.config.flush_messages:
                self._sync_soon()

    def when_committed(self, end_offset: int, callback: Callable[[Error], None]) -> None:
        """Call back when everything below an offset is committed, or when that can no longer be known."""
        self._commit_waits.append((end_offset, callback))

    def forget_commit_wait(self, callback: Callable[[Error], None]) -> None:
        self._commit_waits = [wait for wait in self._commit_waits if wait[1] is not callback]

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back, in the order of asking, when the sync under way has ended."""
        self._writable_waits.append(callback)

    async def in_turn(self, work: Callable[[], T]) -> T:
        """Do something to the log when no sync is under way, in turn with all who wait for that.

        Whoever is woken by a future instead finds, where others always have something to append, the next sync begun.
        """
        if not self.is_syncing:
            return work()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def attempt() -> None:
            if self.is_syncing:
                self.when_writable(attempt)
            elif not done.done():
                try:
                    done.set_result(work())
                except ApiError as error:
                    done.set_exception(error)

        self.when_writable(attempt)
        return await done

    def _committed(self, size_bytes: int) -> None:
        """The high watermark moved: wake those who waited for it."""
        producers = self.log.producers
        is_stable = producers.first_unstable_offset == ALL_STABLE
        if producers.decided:
            producers.high_watermark_moved(self.leader.high_watermark)
        if self._commit_waits:
            high_watermark = self.leader.high_watermark
            ready = [callback for end_offset, callback in self._commit_waits if end_offset <= high_watermark]
            self._commit_waits = [wait for wait in self._commit_waits if wait[0] > high_watermark]
            for callback in ready:
                callback(Error.NONE)
        if self.fetch_waits:
            for wait in list(self.fetch_waits):
                wait.on_bytes(size_bytes)
        if self.stable_waits:
            self._tell_stable_readers(size_bytes, is_stable)

    def _tell_stable_readers(self, size_bytes: int, is_stable: bool) -> None:
        """Without transactions they wait for bytes as others do. A marker may bring them many at once: tell them."""
        last_stable_offset = self.last_stable_offset
        for wait, seen_offset in list(self.stable_waits.items()):
            if is_stable:
                wait.on_bytes(size_bytes)
            elif last_stable_offset > seen_offset:
                wait.on_change()

    def _all_committed(self) -> None:
        """The same, for everything that waited for a sync."""
        size_bytes, self._uncommitted_bytes = self._uncommitted_bytes, 0
        self._committed(max(1, size_bytes))

    # ── syncing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def flush_if_due(self, now_ms: int) -> None:
        """Called by the sweep: for `flush.ms`, for segments that were closed, and after a lack of room."""
        if self.is_gone or self._plan is not None:
            return
        if self._lacks_space or self.log.needs_flush(now_ms):
            self._begin_sync(self.log.begin_flush())
        elif self.log.needs_early_flush:
            self._begin_sync(self.log.begin_flush(closed_only=True))

    def _sync_soon(self) -> None:
        """Begin once the appends that are ready now have been made, so that they share the sync."""
        if not self._is_sync_planned:
            self._is_sync_planned = True
            if not self._lacks_space:  # otherwise the sweep begins the next one
                asyncio.get_running_loop().call_soon(self._sync_now)

    def _sync_now(self) -> None:
        if self._plan is None:  # otherwise when that one has ended
            self._is_sync_planned = False
            if not self.is_gone:
                self._begin_sync(self.log.begin_flush())

    def _begin_sync(self, plan: FlushPlan) -> None:
        self._plan = plan
        self.is_syncing = plan.file is not None
        self.takes_at_once = self._would_take_at_once
        self._sync = sync = asyncio.ensure_future(self._disk.run("sync", plan.run))
        sync.add_done_callback(self._sync_ended)

    def _sync_ended(self, done: asyncio.Future[None]) -> None:
        plan, self._plan = self._plan, None
        self.is_syncing = False
        self.takes_at_once = self._would_take_at_once
        if done.cancelled() or plan is None:
            return
        done.exception()  # the plan remembers it
        log = self.log
        try:
            log.complete_flush(plan)
        except NoSpaceError as error:
            self._sync_lacked_space(error)
            return
        except ApiError as error:
            self._on_storage_failure(self, error)
            return
        self._lacks_space = False
        if self.is_gone:
            return
        counted = plan.end_offset if log.config.flush_mode == "always" else log.end_offset
        if self.leader.local_log_moved(counted):
            self._all_committed()
        self._tell_writers()
        if self._is_sync_planned:
            self._sync_now()

    def _sync_lacked_space(self, error: NoSpaceError) -> None:
        """Nothing is durable by it: those who wait for that go on waiting until the sweep tries again, or give up."""
        if not self._lacks_space:
            logger.error("%s: a sync waits for space: %s", self.name, error)
        self._lacks_space = True
        self._tell_writers()

    def _tell_writers(self) -> None:
        waits, self._writable_waits = self._writable_waits, []
        for callback in waits:
            callback()

    async def sync_is_over(self) -> None:
        """Wait until no thread works on the log's files."""
        if self._sync is not None and not self._sync.done():
            await asyncio.wait([self._sync])

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def use_config(self, config: PartitionConfig) -> None:
        """Go on with other settings; a new `flush.mode` may count more of the log than the old one."""
        self.config = config
        self.takes_at_once = self._would_take_at_once
        if config.log != self.log.config:
            self.log.use_config(config.log)
            if config.log.flush_mode != "always" and self.leader.local_log_moved(self.log.end_offset):
                self._all_committed()

    def log_start_moved(self) -> None:
        self._tell_fetchers()

    def go(self, error: Error) -> None:
        """The partition is deleted, moved away or its disk has failed: everyone who waits on it is answered."""
        self.is_gone = True
        self.takes_writes = self.takes_at_once = False
        waits, self._commit_waits = self._commit_waits, []
        for _, callback in waits:
            callback(error)
        self._tell_writers()
        self._tell_fetchers()

    def _tell_fetchers(self) -> None:
        for wait in [*self.fetch_waits, *self.stable_waits]:
            wait.on_change()
