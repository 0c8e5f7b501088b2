"""A follower's fetch session, as its leader keeps it: what the follower was told, and what there is to tell it.

A follower names its partitions once; from then on they stand in the `follower_waits` of their partitions, between
requests too, and whatever happens to one puts it among the session's `news`. So a request costs by the partitions that
have news, however many thousands the follower has.

A partition whose records were sent (or where the logs part) stays silent until the follower names it again: it is still
busy with them. One that was answered with an error is not in the session any more. A follower that has everything asks
for nothing new, and its leader has to know that it still asks: when the next record comes, it is told of the last
request (`say_when`).

In-sync replicas come first: one that has much to catch up takes only what they leave. Cold ranges are brought into
memory beside the loop, and nobody waits for that but their own partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.world import Clock, Disk
from penstock.broker.connection import FileRange
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.replica_throttle import Limit
from penstock.replication.leader import Leader
from penstock.wire.fetch_response import PartitionAnswer
from penstock.wire.messages.k01_fetch import FetchRequestPartition

logger = logging.getLogger(__name__)

WARMED_AT_ONCE_MAX = 2  # ranges; the threads that read are for consumers, too
NOTHING_TOLD = (-1, -1)
OUTSIDE_IS_TOLD_MS = 500

Answer = PartitionAnswer[FileRange]


class WaitingFetch(Protocol):
    """A request of a follower that has found too little, and waits."""

    def on_bytes(self, size_bytes: int) -> None: ...

    def on_change(self) -> None: ...

    def on_committed(self) -> None: ...


class NamedPartition:
    """One partition in a session."""

    __slots__ = (
        "_is_at_end",
        "_leader",
        "_session",
        "_told",
        "diverging",
        "failure",
        "fetch_offset",
        "index",
        "is_sent",
        "is_warmed",
        "is_warming",
        "max_bytes",
        "partition",
        "topic_key",
    )

    def __init__(self, session: FollowerSession, topic_key: object, partition: Partition) -> None:
        self._session = session
        self.topic_key = topic_key
        self.index = partition.name.partition
        self.partition = partition
        self._leader: Leader | None = None  # in whose epoch it was named
        self._told = NOTHING_TOLD  # high watermark and log start
        self._is_at_end = False  # it had everything at the last request, and nothing has come since
        self.fetch_offset = 0
        self.max_bytes = 0
        self.diverging: tuple[int, int] | None = None
        self.is_sent = False
        self.is_warming = False
        self.is_warmed = False
        self.failure: Error | None = None

    def name(self, leader: Leader, part: FetchRequestPartition) -> None:
        """The follower says where it is; ApiError if the log does not have that."""
        partition, log = self.partition, self.partition.log
        self._leader = leader
        self.fetch_offset, self.max_bytes = part.fetch_offset, part.partition_max_bytes
        self.is_sent = self.is_warmed = False
        self._told = NOTHING_TOLD  # what it was told while it was busy it may not have taken
        self.failure = None
        self.diverging = parting_of(partition, part.fetch_offset, part.last_fetched_epoch)
        self._is_at_end = self.diverging is None and part.fetch_offset == log.end_offset
        if self.diverging is None:
            session = self._session
            partition.follower_fetched(
                session.replica_id, session.broker_epoch, part.fetch_offset, part.log_start_offset
            )

    @property
    def is_in_sync(self) -> bool:
        leader = self._leader
        return leader is not None and self._session.replica_id in leader.membership.isr

    @property
    def is_limited(self) -> bool:
        """Whether what is sent for it is counted."""
        return self.index in self.partition.config.throttled_as_leader

    # ── what the partition tells ─────────────────────────────────────────────────────────────────────────────────

    def on_bytes(self, size_bytes: int) -> None:
        self.say_when()
        self._is_at_end = False
        session = self._session
        session.news[self] = None
        if session.waiting is not None and not self.is_sent:
            session.waiting.on_bytes(size_bytes)

    def on_committed(self) -> None:
        session = self._session
        session.news[self] = None
        if session.waiting is not None:
            session.waiting.on_committed()

    def on_change(self) -> None:
        session = self._session
        session.news[self] = None
        if session.waiting is not None:
            session.waiting.on_change()

    def say_when(self) -> None:
        leader, session = self._leader, self._session
        if self._is_at_end and leader is not None and leader is self.partition.leader:
            at = self.fetch_offset
            leader.follower_fetched(session.replica_id, session.broker_epoch, at, at, session.fetched_ms)

    # ── what there is to tell ────────────────────────────────────────────────────────────────────────────────────

    def answer(self, room_bytes: int, *, is_first: bool) -> tuple[Answer | None, bool]:
        """What to tell now, if anything, and whether something is left for later."""
        self._check()
        partition, log = self.partition, self.partition.log
        answer: Answer = PartitionAnswer(  # the class itself: a call of its alias takes longer than all of this
            self.index, Error.NONE, partition.high_watermark, log_start_offset=log.start_offset
        )
        is_left = False
        if not self.is_sent:
            if self.diverging is not None:
                answer.diverging = self.diverging
            elif self.fetch_offset < log.end_offset:
                if self.fetch_offset < log.start_offset:
                    raise ApiError(Error.OFFSET_OUT_OF_RANGE)
                answer.records = self._records(room_bytes, is_first)
                is_left = answer.records is None
        has_news = answer.records or answer.diverging or self._told != (answer.high_watermark, answer.log_start_offset)
        return (answer if has_news else None), is_left

    def _check(self) -> None:
        """ApiError if the partition is not led here any more as it was when the follower named it."""
        leader = self.partition.leader
        if self.failure is not None:
            raise ApiError(self.failure)
        if leader is None or leader is not self._leader or self.partition.is_gone:
            self._session.find(self.topic_key, self.index)
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        if self._session.replica_id not in leader.followers:
            raise ApiError(Error.UNKNOWN_LEADER_EPOCH)

    def _records(self, room_bytes: int, is_first: bool) -> FileRange | None:
        if (room_bytes <= 0 and not is_first) or self._session.holds_back(self):
            return None
        log = self.partition.log
        if self.is_warmed or log.is_warm(self.fetch_offset, self.max_bytes):
            found = log.read(
                self.fetch_offset,
                min(self.max_bytes, room_bytes),
                end_offset=log.end_offset,
                at_least_one=is_first,
            )
            if not found.size_bytes:
                return None
            is_here = self.is_warmed or found.file.is_cached(found.position, found.size_bytes)
            if is_here and not found.unverified:
                return FileRange(found.file, found.position, found.size_bytes)
        self._session.warm(self)
        return None

    def warm(self) -> None:
        """In a thread: bring the next range into memory and check it; ApiError if it is bad."""
        log = self.partition.log
        found = log.read(self.fetch_offset, self.max_bytes, end_offset=log.end_offset)
        problem = found.verify() if found.unverified else None
        if problem is not None:
            logger.error("%s: a stored range is bad and is not replicated: %s", self.partition.name, problem)
            raise ApiError(Error.KAFKA_STORAGE_ERROR, problem)
        if not found.file.is_cached(found.position, found.size_bytes):
            found.file.read(found.size_bytes, found.position)

    def told(self, answer: Answer) -> None:
        """The answer leaves now."""
        self._told = answer.high_watermark, answer.log_start_offset
        if answer.records is not None or answer.diverging is not None:
            self.is_sent = True
            self.is_warmed = False


class Look:
    """What a session has to tell at one moment."""

    def __init__(self) -> None:
        self.answers: list[tuple[NamedPartition, Answer, bool]] = []  # and whether it has more to tell
        self.size_bytes = 0
        self.is_urgent = False

    @property
    def is_empty(self) -> bool:
        return not self.answers


class FollowerSession:
    """See the head of this file."""

    def __init__(
        self,
        replica_id: int,
        broker_epoch: int,
        session_id: int,
        uses_topic_ids: bool,
        partitions: Partitions,
        clock: Clock,
        disk: Disk,
        limit: Limit,
        on_counted: Callable[[Partition], None],
    ) -> None:
        """`on_counted` is told of partitions for which this follower has asked, and is not in their ISR."""
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.session_id = session_id
        self.epoch = 1  # of the next request
        self.uses_topic_ids = uses_topic_ids
        self.partitions: dict[tuple[object, int], NamedPartition] = {}
        self.news: dict[NamedPartition, None] = {}  # who may have something to tell, in the order of their turns
        self.waiting: WaitingFetch | None = None
        self.fetched_ms = 0  # when the last request came, by the monotonic clock
        self._all = partitions
        self._clock = clock
        self._disk = disk
        self._limit = limit
        self._on_counted = on_counted
        self._outside: dict[NamedPartition, None] = {}  # of the ISR
        self._outside_told_ms = 0
        self._warming = 0

    def find(self, topic_key: object, index: int) -> Partition:
        """A partition by its topic's name or id; ApiError if it is not here."""
        if isinstance(topic_key, UUID):
            return self._all.find_by_id(topic_key, index)
        return self._all.find(str(topic_key), index)

    # ── which partitions ─────────────────────────────────────────────────────────────────────────────────────────

    def name(self, topic_key: object, part: FetchRequestPartition) -> None:
        """A request names a partition: new in the session, or somewhere else than before. ApiError if it may not."""
        key = topic_key, part.partition
        try:
            partition = self.find(topic_key, part.partition)
            leader = self._leader_of(partition, part.current_leader_epoch)
            named = self.partitions.get(key)
            if named is None or named.partition is not partition:
                self.drop(key)
                named = NamedPartition(self, topic_key, partition)
            named.name(leader, part)
        except ApiError:
            self.drop(key)
            raise
        self.partitions[key] = named
        partition.follower_waits[named] = None
        self.news.pop(named, None)
        self.news[named] = None
        if not named.is_in_sync:
            self._outside[named] = None
            self._on_counted(partition)

    def asked(self) -> None:
        """A request has come: whatever it does not name is as it was said to be before."""
        self.fetched_ms = now_ms = int(self._clock.monotonic() * 1000)
        if self._outside and now_ms - self._outside_told_ms >= OUTSIDE_IS_TOLD_MS:
            self._outside_told_ms = now_ms
            for named in list(self._outside):
                if named.is_in_sync:
                    del self._outside[named]
                else:
                    self._on_counted(named.partition)

    def _leader_of(self, partition: Partition, known_epoch: int) -> Leader:
        """The leader's state, if this follower may fetch from it."""
        leader = partition.leader
        if leader is None or known_epoch < 0:  # whoever is a replica knows the epoch
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        if known_epoch != leader.epoch:
            raise ApiError(Error.FENCED_LEADER_EPOCH if known_epoch < leader.epoch else Error.UNKNOWN_LEADER_EPOCH)
        follower = leader.followers.get(self.replica_id)
        if follower is None:
            raise ApiError(Error.UNKNOWN_LEADER_EPOCH, "this replica is not yet, or no longer, one of the partition's")
        if self.broker_epoch < follower.broker_epoch:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER, "a fetch of a former life of the follower")
        return leader

    def drop(self, key: tuple[object, int]) -> None:
        named = self.partitions.pop(key, None)
        if named is not None:
            self.news.pop(named, None)
            self._outside.pop(named, None)
            named.partition.follower_waits.pop(named, None)

    def close(self) -> None:
        for key in list(self.partitions):
            self.drop(key)

    # ── what to tell ─────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, room_bytes: int) -> Look:
        """What there is to tell now, within so many bytes of records."""
        look = Look()
        for named in self._in_turn():
            is_left = False
            try:
                answer, is_left = named.answer(room_bytes - look.size_bytes, is_first=look.size_bytes == 0)
            except ApiError as error:
                answer = Answer(named.index, error.error)
            except OSError as error:
                logger.error("%s: a read failed: %s", named.partition.name, error)
                answer = Answer(named.index, Error.KAFKA_STORAGE_ERROR)
            if answer is not None:
                look.answers.append((named, answer, is_left))
                look.size_bytes += answer.records.size_bytes if answer.records is not None else 0
                look.is_urgent |= answer.error is not Error.NONE or answer.diverging is not None
            elif not is_left:
                self.news.pop(named, None)
        return look

    def _in_turn(self) -> Iterable[NamedPartition]:
        if len(self.news) < 2:
            return list(self.news)
        first: list[NamedPartition] = []
        later: list[NamedPartition] = []
        for named in self.news:
            (first if named.is_in_sync else later).append(named)
        return first + later

    def told(self, look: Look) -> None:
        """What was looked at leaves now."""
        limited_bytes = 0
        for named, answer, is_left in look.answers:
            if answer.error is not Error.NONE:
                self.drop((named.topic_key, named.index))
                continue
            named.told(answer)
            if not is_left:
                del self.news[named]
            if answer.records is not None and named.is_limited:
                limited_bytes += answer.records.size_bytes
        if limited_bytes:
            self._limit.throttle.record(limited_bytes, self._clock.monotonic())

    def holds_back(self, named: NamedPartition) -> bool:
        """Whether nothing is sent for a partition because its replica is limited and catches up too fast."""
        return (
            named.is_limited
            and not named.is_in_sync
            and self._limit.throttle.is_used_up(self._clock.monotonic(), self._limit.bytes_per_s_max())
        )

    # ── cold ranges ──────────────────────────────────────────────────────────────────────────────────────────────

    def warm(self, named: NamedPartition) -> None:
        """Bring the next range of a partition into memory, when there is a thread for it; then it has news."""
        if not named.is_warming and self._warming < WARMED_AT_ONCE_MAX:
            named.is_warming = True
            self._warming += 1
            warming = asyncio.ensure_future(self._disk.run("read", named.warm))
            warming.add_done_callback(partial(self._warmed, named, named.fetch_offset))

    def _warmed(self, named: NamedPartition, offset: int, warming: asyncio.Future[None]) -> None:
        self._warming -= 1
        named.is_warming = False
        if warming.cancelled():
            return
        error = warming.exception()
        if isinstance(error, ApiError):
            partition = named.partition
            partition.record("corruption_found", partition=partition.name, problem=error.message, found_by="a follower")
        if named.fetch_offset == offset:
            named.is_warmed = error is None
            if isinstance(error, ApiError):
                named.failure = error.error
            elif error is not None:
                logger.error("%s: a read failed: %s", named.partition.name, error)
                named.failure = Error.KAFKA_STORAGE_ERROR
        if self.waiting is not None:  # also for those who found no thread
            self.waiting.on_change()


def parting_of(partition: Partition, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """Where a reader's log parts from this one: the epoch and its end here; None if it does not.

    ApiError if its position is not in the log at all.
    """
    log = partition.log
    if last_fetched_epoch >= 0:
        epoch, end_offset = partition.end_of_epoch(last_fetched_epoch)
        if epoch < 0 or fetch_offset < log.start_offset:
            raise ApiError(Error.OFFSET_OUT_OF_RANGE, "the log cannot tell where this epoch ended")
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
    if not log.start_offset <= fetch_offset <= log.end_offset:
        raise ApiError(Error.OFFSET_OUT_OF_RANGE)
    return None
