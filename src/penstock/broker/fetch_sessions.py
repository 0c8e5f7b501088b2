"""Fetch sessions (KIP-227): a fetcher names its partitions once and afterwards only what changed, and is answered only
with partitions that have news.

Pure bookkeeping: the fetch handler decides what a partition has to tell; this file remembers what was told. The cache
is bounded; when it is full a session that has not been used for a while makes room, otherwise the fetcher simply goes
on without one. Followers have sessions of another kind (`follower_session.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.world import Random

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_IDLE_S = 120.0
PARTITIONS_MAX = 200_000  # in all sessions together: what they name takes memory, whether it exists or not


@dataclass(slots=True)
class FetchedPartition:
    """What a fetcher wants of one partition, and what it was told last."""

    name: TopicPartition
    topic_key: object  # the topic as the fetcher named it: its name, or its id from version 13 on
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    told_high_watermark: int = -1
    told_log_start_offset: int = -1
    told_error: bool = False

    @property
    def key(self) -> tuple[object, int]:
        return self.topic_key, self.name.partition


@dataclass(slots=True)
class FetchSession:
    """The partitions of one fetcher, in the order in which they are served next."""

    session_id: int
    uses_topic_ids: bool
    epoch: int = 1
    last_used: float = 0.0
    partitions: dict[tuple[object, int], FetchedPartition] = field(default_factory=dict)

    def update(self, wanted: Iterable[FetchedPartition], forgotten: Iterable[tuple[object, int]]) -> None:
        """Take over what an incremental request says has changed."""
        for key in forgotten:
            self.partitions.pop(key, None)
        for item in wanted:
            known = self.partitions.get(item.key)
            if known is not None:
                item.told_high_watermark = known.told_high_watermark
                item.told_log_start_offset = known.told_log_start_offset
            self.partitions[item.key] = item

    def served(self, item: FetchedPartition) -> None:
        """A partition that was given data goes to the end of the order, so that the others get their turn."""
        if self.partitions.pop(item.key, None) is not None:
            self.partitions[item.key] = item


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, slots_max: int, random: Random) -> None:
        self._slots_max = slots_max
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def open(self, *, uses_topic_ids: bool, now: float, size: int = 0) -> FetchSession | None:
        """A new session for so many partitions, or None without room for one."""
        if len(self._sessions) >= self._slots_max and not self._evict(now):
            return None
        while self._partition_count + size > PARTITIONS_MAX:
            if size > PARTITIONS_MAX or not self._evict(now):
                return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randrange(0x7FFFFFFF)
        session = FetchSession(session_id, uses_topic_ids, last_used=now)
        self._sessions[session_id] = session
        return session

    def _evict(self, now: float) -> bool:
        oldest = min(self._sessions.values(), key=lambda session: session.last_used, default=None)
        if oldest is None or now - oldest.last_used <= EVICTION_IDLE_S:
            return False
        self.close(oldest.session_id)
        return True

    def resume(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now: float) -> FetchSession:
        """The session that an incremental request goes on with; ApiError when it must begin anew."""
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        if epoch != session.epoch:
            raise ApiError(Error.INVALID_FETCH_SESSION_EPOCH, f"expected epoch {session.epoch}, got {epoch}")
        self.go_on(session, now)
        return session

    def go_on(self, session: FetchSession, now: float) -> None:
        """The next request of a session has come."""
        session.epoch = 1 if session.epoch == 0x7FFFFFFF else session.epoch + 1
        session.last_used = now

    def has_only(self, session: FetchSession, epoch: int, key: tuple[object, int]) -> bool:
        """Whether a request of this epoch goes on with the session, and there is just this partition in it."""
        if self._sessions.get(session.session_id) is not session or epoch != session.epoch:
            return False
        return len(session.partitions) == 1 and key in session.partitions

    def update(
        self, session: FetchSession, wanted: Iterable[FetchedPartition], forgotten: Iterable[tuple[object, int]]
    ) -> None:
        """Take over what a request says has changed; ApiError, and the end of the session, if it grows too large."""
        before = len(session.partitions)
        session.update(wanted, forgotten)
        grown = len(session.partitions) - before
        self._partition_count += grown
        if grown > 0 and self._partition_count > PARTITIONS_MAX:
            self.close(session.session_id)
            raise ApiError(Error.FETCH_SESSION_ID_NOT_FOUND)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)
