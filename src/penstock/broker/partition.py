"""One replica of a partition that this broker holds: the owner of its log, of its role, and of who waits on it.

It **leads** (`leader` holds the leader's state) or **follows** another broker, or nobody while there is no leader. As a
leader it takes produces; as a follower it takes what its fetcher brings (`append_fetched`), cuts off what the leader
does not have (`rework`), and counts as committed what the leader says is.

A produce that waits for replication or for a sync, and a fetch that waits for bytes, register a callback here and are
woken by what they wait for; nothing polls. When the role changes, whoever waits is told to look for the leader again.

While the active segment is being synced, or the log is being cut, the partition takes no appends (`is_syncing`): a
write to a file under fsync can block the whole loop, and in `flush.mode=always` those who come meanwhile share the next
sync anyway (group commit).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.base.world import NoSpaceError, World
from penstock.broker.audit_log import Record, not_recorded
from penstock.broker.fetch_waits import FetchWait, FollowerWait
from penstock.broker.lease import Lease
from penstock.broker.partition_config import PartitionConfig
from penstock.broker.verification import Verifications
from penstock.log.flush import FlushPlan
from penstock.log.partition_log import Appended, PartitionLog
from penstock.log.producers import ALL_STABLE
from penstock.log.scrub import Scrub
from penstock.replication.follower import followed_high_watermark
from penstock.replication.leader import Leader, Membership, members
from penstock.wire.batch import BatchHeader
from penstock.wire.control import ControlType
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState

logger = logging.getLogger(__name__)

T = TypeVar("T")


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Partition:
    """See the head of this file."""

    __slots__ = (
        "_clock",
        "_commit_waits",
        "_disk",
        "_followed_high_watermark",
        "_is_sync_planned",
        "_lacks_space",
        "_lease",
        "_may_lead",
        "_on_storage_failure",
        "_plan",
        "_sync",
        "_uncommitted_bytes",
        "_writable_waits",
        "config",
        "epoch",
        "exchange",
        "fetch_waits",
        "follower_waits",
        "is_gone",
        "is_reworking",
        "is_syncing",
        "leader",
        "leader_id",
        "log",
        "name",
        "record",
        "scrub",
        "stable_waits",
        "start_waits",
        "state",
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
        high_watermark: int,
        world: World,
        lease: Lease,
        on_storage_failure: Callable[[Partition, ApiError], None],
    ) -> None:
        """`high_watermark` is how far the log was known to be committed."""
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.scrub = Scrub(log)
        self.leader: Leader | None = None  # while this broker leads
        self.leader_id = NO_LEADER
        self.epoch = -1  # the leader epoch in force here, whoever leads
        self.state = PartitionState((), ())  # as the controller has written it
        self._followed_high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        log.producers.high_watermark_moved(self._followed_high_watermark)
        self.takes_writes = True  # False while the disk is nearly full, and for ever once the partition is gone
        self.is_syncing = False
        self.is_reworking = False  # the log is being cut: its end moves in another thread
        self.exchange: asyncio.Future[None] | None = None  # of closed segments: appends and syncs go on meanwhile
        self.config = config
        self.is_gone = False
        self.takes_at_once = self._would_take_at_once  # a batch can be appended as it is, now, and counts at once
        self.fetch_waits: dict[FetchWait, None] = {}
        self.follower_waits: dict[FollowerWait, None] = {}  # they are given what is not committed yet, too
        self.stable_waits: dict[FetchWait, int] = {}  # of readers of committed records: the last stable offset they saw
        self.record: Record = not_recorded
        self.start_waits: list[Callable[[], None]] = []  # to be called whenever followers have told something
        self._commit_waits: list[tuple[int, Callable[[Error], None]]] = []
        self._writable_waits: list[Callable[[], None]] = []
        self._uncommitted_bytes = 0  # appended, and waiting for a sync to count
        self._is_sync_planned = False
        self._lacks_space = False  # the last sync found no room for what belongs to it
        self._sync: asyncio.Future[None] | None = None
        self._plan: FlushPlan | None = None
        self._disk = world.disk
        self._clock = world.clock
        self._on_storage_failure = on_storage_failure
        self._lease = lease
        self._may_lead = lease.holds
        self.verifications = Verifications()

    @property
    def high_watermark(self) -> int:
        leader = self.leader
        return self._followed_high_watermark if leader is None else leader.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """What read_committed readers may see: nothing at or after the first unstable transaction."""
        return self.stable_below(self.high_watermark)

    def stable_below(self, high_watermark: int) -> int:
        """The same, where the high watermark has been read before: what is appended since begins after it.

        So other threads may ask, too.
        """
        first_unstable = self.log.producers.first_unstable_offset
        return high_watermark if first_unstable >= high_watermark else max(first_unstable, self.log.start_offset)

    def check_epoch(self, known_epoch: int) -> None:
        """Fence both ways: a client that names a leader epoch must know the current one."""
        if 0 <= known_epoch < self.epoch:
            raise ApiError(Error.FENCED_LEADER_EPOCH)
        if known_epoch > self.epoch:
            raise ApiError(Error.UNKNOWN_LEADER_EPOCH)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch not above this one, where it ends); (-1, -1) if the log cannot tell."""
        log, leader = self.log, self.leader
        if epoch == self.epoch:
            return epoch, log.end_offset
        latest = log.epochs.latest
        if leader is not None and latest < epoch < leader.epoch:  # it ended where ours begins, with or without records
            return (latest if latest >= 0 else epoch), leader.epoch_start_offset
        return log.epochs.end_offset_for(epoch, log.end_offset)

    @property
    def _would_take_at_once(self) -> bool:
        mode = self.config.log.flush_mode
        is_alone = self.leader is not None and self.leader.is_alone
        return is_alone and not (self.is_syncing or self.is_gone or self.config.inside or mode == "always")

    # ── leading and following ────────────────────────────────────────────────────────────────────────────────────

    def take_role(self, state: PartitionState, broker_id: int, *, may_lead: bool) -> bool:
        """Be what the controller has written, unless that is older than what is known; True if the role changed.

        Without `may_lead` (this broker is not admitted) a leadership that is written is of its former life.
        """
        if (state.leader_epoch, state.partition_epoch) < (self.state.leader_epoch, self.state.partition_epoch):
            return False
        self.state = state
        leader_id = state.leader if may_lead or state.leader != broker_id else NO_LEADER
        if leader_id == broker_id:
            return self._lead(state, broker_id)
        if self.leader is None and (leader_id, state.leader_epoch) == (self.leader_id, self.epoch):
            return False
        self._follow(leader_id, state.leader_epoch)
        return True

    def _lead(self, state: PartitionState, broker_id: int) -> bool:
        membership = Membership(state.replicas, members(state.isr), state.partition_epoch)
        now_ms = int(self._clock.monotonic() * 1000)
        leader = self.leader
        if leader is not None and leader.epoch == state.leader_epoch:
            self._leader_moved(leader.membership_changed(membership, now_ms))
            return False
        if leader is not None:
            self._follow(NO_LEADER, state.leader_epoch)
        log = self.log
        is_lazy = log.config.flush_mode != "always"
        self.epoch, self.leader_id = state.leader_epoch, broker_id
        self.leader = Leader(
            broker_id,
            state.leader_epoch,
            membership,
            end_offset=log.end_offset,
            counted_end_offset=log.end_offset if is_lazy else log.recovery_point,
            high_watermark=self._followed_high_watermark,
            min_isr=self.config.min_isr,
            now_ms=now_ms,
        )
        if not is_lazy and log.recovery_point < log.end_offset:
            self._sync_soon()
        self._leader_moved(is_moved=True)
        self._tell_fetchers()
        return True

    def _follow(self, leader_id: int, epoch: int) -> None:
        self._followed_high_watermark = self.high_watermark
        self.leader, self.leader_id, self.epoch = None, leader_id, epoch
        self._uncommitted_bytes = 0
        self.takes_at_once = False
        self.verifications = Verifications()
        self._give_up(Error.NOT_LEADER_OR_FOLLOWER)

    def require_leader(self) -> Leader:
        """The leader's state; ApiError if this broker does not lead, or may not while its session is in doubt."""
        leader = self.leader
        if leader is None or not (self._may_lead() or self._is_followed(leader)):
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        return leader

    def _is_followed(self, leader: Leader) -> bool:
        """Out of our lease: whether everybody else who could lead follows us still."""
        for wait in self.follower_waits:
            wait.say_when()
        since_ms = int(self._clock.monotonic() * 1000) - self._lease.timeout_ms
        return leader.is_followed_since(since_ms)

    def check_enough_in_sync(self) -> None:
        """ApiError unless the ISR is as large as writes with acks=all ask for."""
        if not self.require_leader().has_enough:
            raise ApiError(Error.NOT_ENOUGH_REPLICAS)

    def follower_fetched(self, follower_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int) -> None:
        """A follower asks, in this epoch, for what comes at an offset: it has everything from its start up to there.

        Also out of our lease: what all of the ISR has is committed, and who follows us does not lead.
        """
        leader = self.leader
        if leader is None:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        leader.follower_starts_at(follower_id, log_start_offset)
        now_ms = int(self._clock.monotonic() * 1000)
        self._leader_moved(
            leader.follower_fetched(follower_id, broker_epoch, fetch_offset, self.log.end_offset, now_ms)
        )

    def isr_change_ended(self, leader: Leader, *, is_refused: bool) -> None:
        """The controller has answered; what it has made of the ISR comes with the state."""
        if self.leader is leader and is_refused:
            self._leader_moved(leader.isr_change_refused())

    def _leader_moved(self, is_moved: bool) -> None:
        """What the leader counts has changed from outside; True: and with it the high watermark."""
        self.takes_at_once = self._would_take_at_once
        if is_moved:
            self._all_committed()
        for tell in self.start_waits:
            tell()

    # ── following ────────────────────────────────────────────────────────────────────────────────────────────────

    def require_following(self, epoch: int) -> None:
        """ApiError if what was fetched in an epoch is of no use any more."""
        if self.is_gone or self.leader is not None or self.leader_id == NO_LEADER or epoch != self.epoch:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)

    def append_fetched(self, epoch: int, batches: memoryview, high_watermark: int, log_start_offset: int) -> None:
        """Append what the leader of an epoch sent. The caller has seen to it that no sync is under way."""
        assert not self.is_syncing
        self.require_following(epoch)
        end_offset = self.log.append_as_follower(batches)
        self.take_high_watermark(epoch, high_watermark, log_start_offset)
        config = self.log.config
        if config.flush_mode == "always" or end_offset - self.log.recovery_point >= config.flush_messages:
            self._sync_soon()

    def take_high_watermark(self, epoch: int, high_watermark: int, log_start_offset: int) -> None:
        """What the leader says of its log: how far it is committed, and where it starts."""
        self.require_following(epoch)
        log = self.log
        before = self._followed_high_watermark
        self._followed_high_watermark = after = followed_high_watermark(before, high_watermark, log.end_offset)
        if log_start_offset > log.start_offset and log.advance_start_offset(min(log_start_offset, after)):
            self.log_start_moved()
        if after != before:
            if log.producers.decided:
                log.producers.high_watermark_moved(after)
            for wait in [*self.fetch_waits, *self.stable_waits]:
                wait.on_change()

    def begin_rework(self, work: Callable[[], None]) -> asyncio.Future[None] | None:
        """Begin to change what is stored, beside the loop, until `end_rework`; None while somebody else is at it."""
        if self.is_syncing or self._plan is not None or self.exchange is not None:
            return None
        self.is_syncing = self.is_reworking = True
        self.takes_at_once = False
        self._sync = working = asyncio.ensure_future(self._disk.run("sync", work))
        return working

    def end_rework(self) -> None:
        self.is_syncing = self.is_reworking = False
        log = self.log
        self._followed_high_watermark = max(min(self._followed_high_watermark, log.end_offset), log.start_offset)
        self.takes_at_once = self._would_take_at_once
        self._tell_writers()
        if self._is_sync_planned:
            self._sync_now()

    def storage_failed(self, reason: str) -> None:
        """The disk cannot be trusted any more."""
        self.log.fail(reason)
        self._on_storage_failure(self, ApiError(Error.KAFKA_STORAGE_ERROR, reason))

    @property
    def must_sync(self) -> bool:
        """Whether what is stored does not yet count as being here, because it is not synced."""
        return self.log.config.flush_mode == "always" and self.log.recovery_point < self.log.end_offset

    async def until_synced(self) -> None:
        """Returns when all that is stored now is synced, or the partition is gone."""
        end_offset = self.log.end_offset
        while self.log.recovery_point < min(end_offset, self.log.end_offset) and not self.is_gone:
            self._sync_soon()
            synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_writable(partial(_resolve, synced))
            await synced

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Append one checked batch as the leader. The caller has seen to it that no sync is under way."""
        assert not self.is_syncing
        leader = self.leader
        if leader is None or not (self._may_lead() or self._is_followed(leader)):
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        if not self.takes_writes:
            if self.is_gone:
                raise ApiError(Error.KAFKA_STORAGE_ERROR, "the partition is not served here any more")
            raise ApiError(Error.KAFKA_STORAGE_ERROR, "the disk is nearly full; produces wait for space")
        log = self.log
        appended = log.append_as_leader(batch, header, leader.epoch, now_ms)
        if not appended.duplicate:
            self._grew(len(batch))
        return appended

    def append_own(self, batch: memoryview, now_ms: int) -> Appended:
        """Append a batch that this broker made itself. It may use the reserve of a nearly full disk."""
        assert not self.is_syncing
        if self.is_gone:
            raise ApiError(Error.KAFKA_STORAGE_ERROR, "the partition is not served here any more")
        appended = self.log.append_own(batch, self.require_leader().epoch, now_ms)
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
        leader = self.require_leader()
        size_bytes = self.log.size_bytes
        appended = self.log.append_marker(
            ControlType.COMMIT if is_commit else ControlType.ABORT,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=leader.epoch,
            now_ms=now_ms,
            transaction_version=transaction_version,
        )
        self.verifications.forget(producer.producer_id)
        self._grew(self.log.size_bytes - size_bytes)
        return appended

    def _grew(self, size_bytes: int) -> None:
        """The log has so many bytes more: they count here now, or once they are synced."""
        log = self.log
        leader = self.leader
        assert leader is not None
        if log.config.flush_mode == "always":
            self._uncommitted_bytes += size_bytes
            self._sync_soon()
        else:
            end_offset = log.end_offset
            if not leader.local_log_moved(end_offset):
                self._uncommitted_bytes += size_bytes
            elif self.fetch_waits or self.stable_waits or self._commit_waits or log.producers.decided:
                self._committed(size_bytes)
            if end_offset - log.recovery_point >= log.config.flush_messages:
                self._sync_soon()
        if self.follower_waits:
            for wait in list(self.follower_waits):
                wait.on_bytes(size_bytes)

    def when_committed(self, end_offset: int, callback: Callable[[Error], None]) -> None:
        """Call back when everything below an offset is committed, or when that can no longer be known."""
        self._commit_waits.append((end_offset, callback))

    def forget_commit_waits(self, callbacks: Collection[Callable[[Error], None]]) -> None:
        self._commit_waits = [wait for wait in self._commit_waits if wait[1] not in callbacks]

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back, in the order of asking, when the sync under way has ended."""
        self._writable_waits.append(callback)

    async def in_turn(self, work: Callable[[], T]) -> T:
        """Do something to the log when no sync is under way, in turn with all who wait for that; see `reworking.py`."""
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
        leader = self.leader
        assert leader is not None
        high_watermark = leader.high_watermark
        producers = self.log.producers
        is_stable = producers.first_unstable_offset == ALL_STABLE
        if producers.decided:
            producers.high_watermark_moved(high_watermark)
        if self._commit_waits:
            ready = [callback for end_offset, callback in self._commit_waits if end_offset <= high_watermark]
            self._commit_waits = [wait for wait in self._commit_waits if wait[0] > high_watermark]
            error = Error.NONE if leader.has_enough else Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            for callback in ready:
                callback(error)
        if self.fetch_waits:
            for wait in list(self.fetch_waits):
                wait.on_bytes(size_bytes)
        if self.stable_waits:
            self._tell_stable_readers(size_bytes, is_stable)
        for follower in self.follower_waits:
            follower.on_committed()

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
        if self.is_gone or self.is_reworking or self._plan is not None:
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
        if self._plan is None and not self.is_reworking:  # otherwise when that one has ended
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
        if self.leader is not None and self.leader.local_log_moved(counted):
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
        for work in (self._sync, self.exchange):
            if work is not None and not work.done():
                await asyncio.wait([work])

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def use_config(self, config: PartitionConfig) -> None:
        """Go on with other settings; a new `flush.mode` may count more of the log than the old one."""
        self.config = config
        leader = self.leader
        if config.log != self.log.config:
            self.log.use_config(config.log)
            if leader is not None and config.log.flush_mode != "always":
                self._leader_moved(leader.local_log_moved(self.log.end_offset))
        if leader is not None:
            self._leader_moved(leader.use_min_isr(config.min_isr))

    def log_start_moved(self) -> None:
        self._tell_fetchers()

    def go(self, error: Error) -> None:
        """The partition is deleted, moved away or its disk has failed: everyone who waits on it is answered."""
        self.is_gone = True
        self.takes_writes = self.takes_at_once = False
        self._give_up(error)

    def _give_up(self, error: Error) -> None:
        """Nobody who waits here gets what they wait for."""
        waits, self._commit_waits = self._commit_waits, []
        for _, callback in waits:
            callback(error)
        self._tell_writers()
        self._tell_fetchers()

    def _tell_fetchers(self) -> None:
        for tell in self.start_waits:
            tell()
        for wait in [*self.fetch_waits, *self.stable_waits, *self.follower_waits]:
            wait.on_change()
