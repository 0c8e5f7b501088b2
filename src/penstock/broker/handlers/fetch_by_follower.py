"""Fetches of followers: how a leader gives its log to the other replicas.

The same API as for consumers, with the replica's id and the epoch of its registration. A follower reads up to the end
of the log, must know the present leader epoch, and says with every position what it has; that moves the high watermark.
Its session (`broker/follower_session.py`) knows what there is to tell; here are the requests.

A request that finds too little waits, and is answered by what comes first: enough bytes, an error, the follower's next
request, or the time it gave. The high watermark alone does not answer it at once: under load the next records bring it
along. When nothing else comes for a moment it is told by itself; and at once where consumers read from followers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID
from penstock.base.world import Clock, Disk, Random
from penstock.broker.connection import Connection, FileRange, Response, Slot
from penstock.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from penstock.broker.follower_session import Answer, FollowerSession, Look
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.replica_throttle import Limit
from penstock.broker.request_counts import ApiCounts
from penstock.wire.fetch_response import TOPIC_IDS_SINCE, TopicAnswer, encode_fetch_response
from penstock.wire.messages.k01_fetch import FetchRequest

logger = logging.getLogger(__name__)

SESSIONS_SINCE = 7
REPLICA_STATE_SINCE = 15
COMMITTED_IS_TOLD_AFTER_S = 0.02
NO_SESSION = 0


class FollowerFetches:
    """The followers of this broker's partitions, each with its session."""

    def __init__(
        self,
        partitions: Partitions,
        clock: Clock,
        disk: Disk,
        random: Random,
        limit: Limit,
        on_counted: Callable[[Partition], None],
        counts: ApiCounts,
        *,
        bytes_max: int,
        tells_committed_at_once: bool,
    ) -> None:
        """`on_counted` is told of partitions whose follower may have caught up."""
        self.bytes_max = bytes_max
        self.committed_is_told_after_s = 0.0 if tells_committed_at_once else COMMITTED_IS_TOLD_AFTER_S
        self._partitions = partitions
        self._clock = clock
        self._disk = disk
        self._random = random
        self._limit = limit
        self._on_counted = on_counted
        self.counts = counts
        self._sessions: dict[int, FollowerSession] = {}  # by the follower's broker id

    def handle(
        self, connection: Connection, version: int, correlation_id: int, request: FetchRequest
    ) -> Response | None:
        """The response, or None if it follows later."""
        try:
            session = self._session_of(request, version)
        except ApiError as error:
            self.counts.refused(error.error)
            return encode_fetch_response(version, correlation_id, [], error=error.error)
        session.asked()
        before = session.waiting
        if isinstance(before, _FollowerFetch):
            before.answer()
        by_id = version >= TOPIC_IDS_SINCE
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.drop((topic.topic_id if by_id else topic.topic, index))
        fetch = _FollowerFetch(self, session, connection, version, correlation_id, request)
        for row in request.topics:
            key = row.topic_id if by_id else row.topic
            for part in row.partitions:
                try:
                    session.name(key, part)
                except ApiError as error:
                    fetch.refused.append((key, Answer(part.partition, error.error)))
        if not session.partitions and request.session_epoch == INITIAL_EPOCH:
            self.end(session)
        return fetch.run()

    # ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _session_of(self, request: FetchRequest, version: int) -> FollowerSession:
        if version >= REPLICA_STATE_SINCE:
            replica_id, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        else:
            replica_id, broker_epoch = request.replica_id, -1
        known = self._sessions.get(replica_id)
        if version < SESSIONS_SINCE or request.session_epoch == FINAL_EPOCH:
            if known is not None and known.session_id == request.session_id:
                self.end(known)
            return self._new_session(replica_id, broker_epoch, version, NO_SESSION)
        if request.session_epoch == INITIAL_EPOCH:
            if known is not None:
                self.end(known)
            session_id = 1 + self._random.randrange(0x7FFFFFFE)
            session = self._sessions[replica_id] = self._new_session(replica_id, broker_epoch, version, session_id)
            return session
        if known is None or known.session_id != request.session_id or known.broker_epoch != broker_epoch:
            raise ApiError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if known.uses_topic_ids != (version >= TOPIC_IDS_SINCE):
            raise ApiError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        if known.epoch != request.session_epoch:
            raise ApiError(Error.INVALID_FETCH_SESSION_EPOCH)
        known.epoch = 1 if known.epoch == 0x7FFFFFFF else known.epoch + 1
        return known

    def _new_session(self, replica_id: int, broker_epoch: int, version: int, session_id: int) -> FollowerSession:
        return FollowerSession(
            replica_id,
            broker_epoch,
            session_id,
            version >= TOPIC_IDS_SINCE,
            self._partitions,
            self._clock,
            self._disk,
            self._limit,
            self._on_counted,
        )

    def end(self, session: FollowerSession) -> None:
        """Forget a session: the next request of its follower begins another."""
        if self._sessions.get(session.replica_id) is session:
            del self._sessions[session.replica_id]
        session.session_id = NO_SESSION
        session.close()
        if isinstance(session.waiting, _FollowerFetch):
            session.waiting.answer()


class _FollowerFetch:
    """One request, until it is answered."""

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_handler",
        "_is_over",
        "_is_planned",
        "_missing_bytes",
        "_request",
        "_room_bytes",
        "_session",
        "_slot",
        "_telling",
        "_timer",
        "_version",
        "refused",
    )

    def __init__(
        self,
        handler: FollowerFetches,
        session: FollowerSession,
        connection: Connection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
    ) -> None:
        self._handler = handler
        self._session = session
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._request = request
        self._room_bytes = min(request.max_bytes, handler.bytes_max)
        self.refused: list[tuple[object, Answer]] = []
        self._missing_bytes = 0
        self._slot: Slot | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Handle | None = None
        self._is_planned = False
        self._is_over = False

    def run(self) -> Response | None:
        """The response, or None if it follows later."""
        look = self._session.look(self._room_bytes)
        if self.refused or self._request.max_wait_ms <= 0 or self._is_enough(look):
            self._is_over = True
            return self._response(look)
        self._slot = self._connection.reserve(self._cancelled)
        self._timer = asyncio.get_running_loop().call_later(self._request.max_wait_ms / 1000, self.answer)
        self._session.waiting = self
        if not look.is_empty:
            self.on_committed()
        return None

    def _is_enough(self, look: Look) -> bool:
        self._missing_bytes = self._request.min_bytes - look.size_bytes
        has_nothing = self._session.session_id == NO_SESSION and not self._session.partitions
        return look.is_urgent or self._missing_bytes <= 0 or has_nothing

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def on_bytes(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.on_change()

    def on_change(self) -> None:
        """Look again after what is being done now: several appends in a row are told together."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def on_committed(self) -> None:
        if self._telling is None:
            loop = asyncio.get_running_loop()
            delay_s = self._handler.committed_is_told_after_s
            self._telling = loop.call_later(delay_s, self._tell) if delay_s else loop.call_soon(self._tell)

    def _look_again(self) -> None:
        self._is_planned = False
        self._answer_if(self._is_enough)

    def _tell(self) -> None:
        self._telling = None
        self._answer_if(lambda look: not look.is_empty)

    def answer(self) -> None:
        """Wait no longer."""
        self._answer_if(lambda _look: True)

    def _answer_if(self, is_enough: Callable[[Look], bool]) -> None:
        if self._is_over:
            return
        try:
            look = self._session.look(self._room_bytes)
            if is_enough(look):
                self._end_wait()
                assert self._slot is not None
                self._connection.fill(self._slot, self._response(look))
        except Exception as error:  # a bug of ours: nobody is left waiting for an answer that will not come
            logger.error("a fetch of a follower failed", exc_info=error)
            self._connection.close("a fetch failed here; see the log")

    def _end_wait(self) -> None:
        self._is_over = True
        if self._session.waiting is self:
            self._session.waiting = None
        for planned in (self._timer, self._telling):
            if planned is not None:
                planned.cancel()

    def _cancelled(self) -> None:
        """The connection is gone, and its follower will begin another session."""
        self._end_wait()
        self._handler.end(self._session)

    # ── answering ────────────────────────────────────────────────────────────────────────────────────────────────

    def _response(self, look: Look) -> Response:
        session = self._session
        topics: dict[object, TopicAnswer[FileRange]] = {}
        told = [*self.refused, *((named.topic_key, answer) for named, answer, _ in look.answers)]
        for topic_key, answer in told:
            if answer.error is not Error.NONE:
                self._handler.counts.refused(answer.error)
            _of_topic(topics, topic_key).partitions.append(answer)
        session.told(look)
        if session.session_id == NO_SESSION:
            session.close()
        return encode_fetch_response(
            self._version, self._correlation_id, list(topics.values()), session_id=session.session_id
        )


def _of_topic(topics: dict[object, TopicAnswer[FileRange]], topic_key: object) -> TopicAnswer[FileRange]:
    topic = topics.get(topic_key)
    if topic is None:
        name, topic_id = ("", topic_key) if isinstance(topic_key, UUID) else (str(topic_key), NO_ID)
        topic = topics[topic_key] = TopicAnswer(name, topic_id, [])
    return topic
