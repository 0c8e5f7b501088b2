"""Fetch (4-18): read batches, with sessions, long polling, topic ids and epochs.

A request becomes a `_Fetch`: it looks at its partitions, and answers at once if there is enough to tell or the reader
will not wait; otherwise it registers with the partitions and looks again when they have news or the time is over. One
that asks for one partition and is answered at once leaves a `FetchAgain` with its connection, for those like it.
Records go from the file to the socket; a range that is not in memory, or was not checked since the start, is first read
and checked beside the loop.

A reader of committed records (`isolation_level` 1) sees nothing at or after the last stable offset, waits for that
rather than for the high watermark, and is told which of the transactions in what it gets were aborted.

A consumer that says in which rack it is may be sent to a follower there (`broker/read_replicas.py`), which serves it up
to the high watermark that it knows; everybody else is served by leaders only. What followers fetch is another matter:
see `fetch_by_follower.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID, TopicPartition
from penstock.base.world import Clock, Disk
from penstock.broker.client_quotas import ClientQuotas
from penstock.broker.cluster_view import ClusterView
from penstock.broker.connection import Connection, FileRange, Response, Slot
from penstock.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchedPartition,
    FetchSession,
    FetchSessions,
)
from penstock.broker.fetch_shortcuts import READ_COMMITTED, fetch_again
from penstock.broker.follower_session import parting_of
from penstock.broker.handlers.fetch_by_follower import FollowerFetches
from penstock.broker.handlers.known_leaders import KnownLeaders
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.read_replicas import THE_LEADER, preferred_read_replica
from penstock.broker.request_counts import ApiCounts
from penstock.broker.rights import HotAsker, Rights
from penstock.log.ranges import LogRange
from penstock.security.acls import Operation, ResourceType
from penstock.wire.codec import decoder
from penstock.wire.fetch_response import (
    ENDPOINTS_SINCE,
    TOPIC_IDS_SINCE,
    EndpointAnswer,
    PartitionAnswer,
    TopicAnswer,
    encode_fetch_response,
)
from penstock.wire.messages.k01_fetch import API as API
from penstock.wire.messages.k01_fetch import FetchRequest

logger = logging.getLogger(__name__)

SESSIONS_SINCE = 7
RACKS_SINCE = 11
#: Who gets one of these came to the wrong broker, or believes in a former leader.
_MISLED = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)
#: Told with the next answer: who keeps asking for a partition that is not there must not do so all the time.
_CAN_WAIT = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)

Answer = PartitionAnswer[FileRange]


class Fetch:
    """The handler; one for a broker."""

    def __init__(
        self,
        partitions: Partitions,
        sessions: FetchSessions,
        followers: FollowerFetches,
        clock: Clock,
        disk: Disk,
        bytes_max: int,
        racks: ClusterView | None,
        leaders_on: Callable[[str], KnownLeaders] | None,
        counts: ApiCounts,
        rights: Rights,
    ) -> None:
        """`racks` is given where consumers are sent to replicas in their own rack; leaders are found by listener."""
        self.partitions = partitions
        self.sessions = sessions
        self.followers = followers
        self.clock = clock
        self.disk = disk
        self.bytes_max = bytes_max
        self.racks = racks
        self.leaders_on = leaders_on
        self.counts = counts
        self.quotas: ClientQuotas | None = None
        self.rights = rights

    def __call__(
        self, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
    ) -> Response | None:
        request, _ = decoder(FetchRequest, version)(frame, position)
        if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
            who = HotAsker(connection.principal, connection.peer.host, API.key)
            if not self.rights.allows(who, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
                connection.follows = False
                return self._refused_follower(version, correlation_id, request)
            connection.follows = True
            return self.followers.handle(connection, version, correlation_id, request)
        connection.follows = False
        try:
            session, items, is_full = self._session_of(request, version)
        except ApiError as error:
            self.counts.refused(error.error)
            return encode_fetch_response(version, correlation_id, [], error=error.error)
        response = _Fetch(self, connection, version, correlation_id, request, session, items, is_full).run()
        if type(response) is list and len(response) > 1 and len(items) == 1:
            again = fetch_again(self, connection, version, frame, position, request, session, items[0])
            if again is not None:
                connection.fetch_again = again
        return response

    def _refused_follower(self, version: int, correlation_id: int, request: FetchRequest) -> Response:
        """For whoever says to be a replica, and is no broker."""
        error = Error.TOPIC_AUTHORIZATION_FAILED
        self.counts.refused(error)
        topics: list[TopicAnswer[FileRange]] = [
            TopicAnswer(row.topic, row.topic_id, [PartitionAnswer(part.partition, error) for part in row.partitions])
            for row in request.topics
        ]
        return encode_fetch_response(version, correlation_id, topics)

    def judged(self, connection: Connection, items: list[FetchedPartition]) -> dict[str, bool] | None:
        """Which of the topics may be read, as far as they are known; None if all may."""
        if not self.rights.is_on:
            return None
        who = HotAsker(connection.principal, connection.peer.host, API.key)
        names: set[str | None] = set()
        for item in items:
            by_id = isinstance(item.topic_key, UUID)
            names.add(self.partitions.name_of_id(item.topic_key) if by_id else item.name.topic)  # type: ignore[arg-type]
        return {
            name: self.rights.allows(who, Operation.READ, ResourceType.TOPIC, name)
            for name in names
            if name is not None
        }

    def _session_of(
        self, request: FetchRequest, version: int
    ) -> tuple[FetchSession | None, list[FetchedPartition], bool]:
        """The session, the partitions to look at, and whether all of them are told (rather than those with news)."""
        wanted = list(self._wanted(request, version))
        if version < SESSIONS_SINCE or request.session_epoch == FINAL_EPOCH:
            self.sessions.close(request.session_id)
            return None, wanted, True
        now = self.clock.monotonic()
        by_id = version >= TOPIC_IDS_SINCE
        if request.session_epoch == INITIAL_EPOCH:
            self.sessions.close(request.session_id)
            if not wanted:
                return None, wanted, True
            session = self.sessions.open(uses_topic_ids=by_id, now=now, size=len(wanted))
            if session is not None:
                self.sessions.update(session, wanted, ())
            return session, wanted, True
        session = self.sessions.resume(request.session_id, request.session_epoch, uses_topic_ids=by_id, now=now)
        self.sessions.update(session, wanted, self._forgotten(request, version))
        return session, list(session.partitions.values()), False

    def _wanted(self, request: FetchRequest, version: int) -> Iterable[FetchedPartition]:
        by_id = version >= TOPIC_IDS_SINCE
        for topic in request.topics:
            # an unknown topic id stands for itself until the topic is known
            name = self.partitions.name_of_id(topic.topic_id) or str(topic.topic_id) if by_id else topic.topic
            for part in topic.partitions:
                yield FetchedPartition(
                    TopicPartition(name, part.partition),
                    topic.topic_id if by_id else topic.topic,
                    part.fetch_offset,
                    part.partition_max_bytes,
                    part.current_leader_epoch,
                    part.last_fetched_epoch,
                )

    def _forgotten(self, request: FetchRequest, version: int) -> Iterable[tuple[object, int]]:
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                yield topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic, index


class _Fetch:
    """One request, until it is answered."""

    __slots__ = (
        "_answers",
        "_connection",
        "_correlation_id",
        "_handler",
        "_is_committed_only",
        "_is_full",
        "_is_over",
        "_is_planned",
        "_items",
        "_judged",
        "_lacks_aborted",
        "_missing_bytes",
        "_problems",
        "_rack",
        "_ranges",
        "_request",
        "_rules_version",
        "_session",
        "_slot",
        "_timer",
        "_version",
        "_watched",
    )

    def __init__(
        self,
        handler: Fetch,
        connection: Connection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        session: FetchSession | None,
        items: list[FetchedPartition],
        is_full: bool,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._request = request
        self._is_committed_only = request.isolation_level == READ_COMMITTED
        self._rack = request.rack_id if version >= RACKS_SINCE else ""
        self._session = session
        self._items = items
        self._rules_version = handler.rights.authorizer.version
        self._judged = handler.judged(connection, items)
        self._is_full = is_full
        self._answers: list[tuple[FetchedPartition, Answer]] = []
        self._ranges: list[tuple[Answer, Partition, LogRange]] = []
        self._problems: list[tuple[Partition, str]] = []
        self._watched: list[Partition] = []
        self._missing_bytes = 0
        self._lacks_aborted = False  # the list of aborted transactions is on the disk
        self._slot: Slot | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_planned = False
        self._is_over = False

    def run(self) -> Response | None:
        """The response, or None if it follows later."""
        if self._is_cold():
            self._slot = self._connection.reserve()
            self._look_and_warm()
            return None
        size_bytes, is_urgent = self._look()
        if is_urgent or size_bytes >= self._request.min_bytes or self._request.max_wait_ms <= 0:
            if self._is_ready_to_send():
                return self._response()
            self._slot = self._connection.reserve()
            self._look_and_warm()
            return None
        self._missing_bytes = self._request.min_bytes - size_bytes
        self._slot = self._connection.reserve(self._cancel)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._request.max_wait_ms / 1000, self._answer)
        for partition in self._watched:
            if self._is_committed_only:
                partition.stable_waits[self] = partition.last_stable_offset
            else:
                partition.fetch_waits[self] = None
        return None

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, *, may_wait: bool = False) -> tuple[int, bool]:
        """What there is to tell now: its bytes, and whether it must be told at once (an error)."""
        self._answers.clear()
        self._ranges.clear()
        self._watched.clear()
        self._lacks_aborted = False
        room_bytes = min(self._request.max_bytes, self._handler.bytes_max)
        if (quotas := self._handler.quotas) is not None and quotas.is_limiting:
            room_bytes = min(room_bytes, quotas.fetch_bytes_max(self._connection))
        total_bytes = 0
        is_urgent = not self._items
        for item in self._items:
            answer: Answer = PartitionAnswer(item.name.partition)  # the class itself: its alias is slow to call
            try:
                partition = self._partition_of(item)
                self._watched.append(partition)
                if self._rack and self._is_better_elsewhere(item, partition, answer):
                    is_urgent = True
                else:
                    size_bytes = self._read(item, partition, answer, room_bytes - total_bytes, total_bytes == 0)
                    if size_bytes and self._is_committed_only:
                        self._tell_aborted(item, partition, answer, may_wait)
                    total_bytes += size_bytes
                    is_urgent = is_urgent or answer.diverging is not None
            except ApiError as error:
                answer = Answer(item.name.partition, error.error)
                is_urgent = is_urgent or error.error not in _CAN_WAIT
            except OSError as error:
                logger.error("%s: a read failed: %s", item.name, error)
                answer = Answer(item.name.partition, Error.KAFKA_STORAGE_ERROR)
                is_urgent = True
            if self._is_full or self._has_news(item, answer):
                self._answers.append((item, answer))
        return total_bytes, is_urgent or not self._watched

    def _partition_of(self, item: FetchedPartition) -> Partition:
        partitions = self._handler.partitions
        if self._version >= TOPIC_IDS_SINCE:
            assert isinstance(item.topic_key, UUID)
            if item.topic_key == NO_ID:
                raise ApiError(Error.UNKNOWN_TOPIC_ID)
            self._check_may_read(partitions.name_of_id(item.topic_key))
            partition = partitions.find_by_id(item.topic_key, item.name.partition)
            item.name = partition.name
        else:
            self._check_may_read(item.name.topic)
            partition = partitions.find(item.name.topic, item.name.partition)
        if partition.leader is None and (not self._rack or partition.is_reworking):
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        partition.check_epoch(item.current_leader_epoch)
        return partition

    def _check_may_read(self, topic: str | None) -> None:
        """By what was judged when the request came; a topic that was not known then is not known yet."""
        if self._judged is None or topic is None:
            return
        may_read = self._judged.get(topic)
        if may_read is None:
            raise ApiError(Error.UNKNOWN_TOPIC_ID)
        if not may_read:
            raise ApiError(Error.TOPIC_AUTHORIZATION_FAILED)

    def _is_better_elsewhere(self, item: FetchedPartition, partition: Partition, answer: Answer) -> bool:
        """Whether the consumer is told to read from another replica."""
        racks, leader = self._handler.racks, partition.leader
        if racks is None or leader is None:
            return False
        answer.preferred_read_replica = preferred_read_replica(leader, racks.brokers, self._rack, item.fetch_offset)
        if answer.preferred_read_replica == THE_LEADER:
            return False
        self._tell_offsets(partition, answer)
        return True

    def _tell_offsets(self, partition: Partition, answer: Answer) -> None:
        answer.high_watermark = partition.high_watermark
        answer.last_stable_offset = partition.stable_below(answer.high_watermark)
        answer.log_start_offset = partition.log.start_offset
        if self._is_committed_only:
            answer.aborted = []

    def _read(
        self, item: FetchedPartition, partition: Partition, answer: Answer, room_bytes: int, is_first: bool
    ) -> int:
        """Fill in the answer for one partition; returns the bytes of its records."""
        log = partition.log
        self._tell_offsets(partition, answer)
        answer.diverging = _parting(item, partition)
        if answer.diverging is not None:
            return 0
        end_offset = answer.last_stable_offset if self._is_committed_only else answer.high_watermark
        if item.fetch_offset >= end_offset or (room_bytes <= 0 and not is_first):
            return 0
        found = log.read(
            item.fetch_offset, min(item.max_bytes, room_bytes), end_offset=end_offset, at_least_one=is_first
        )
        if not found.size_bytes:
            return 0
        answer.records = FileRange(found.file, found.position, found.size_bytes)
        self._ranges.append((answer, partition, found))
        return found.size_bytes

    def _tell_aborted(self, item: FetchedPartition, partition: Partition, answer: Answer, may_wait: bool) -> None:
        _, _, found = self._ranges[-1]
        aborted = partition.log.aborted_transactions(item.fetch_offset, found.offset_bound, may_wait=may_wait)
        self._lacks_aborted = self._lacks_aborted or aborted is None
        answer.aborted = [(entry.producer_id, entry.first_offset) for entry in aborted or ()]

    def _has_news(self, item: FetchedPartition, answer: Answer) -> bool:
        return (
            answer.records is not None
            or answer.error is not Error.NONE
            or answer.diverging is not None
            or answer.preferred_read_replica != THE_LEADER
            or item.told_error
            or item.told_high_watermark != answer.high_watermark
            or item.told_log_start_offset != answer.log_start_offset
        )

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def on_bytes(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.on_change()

    def on_change(self) -> None:
        """Answer, after what is being done now: several appends in a row are told together."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self) -> None:
        if self._is_over:
            return
        self._cancel()
        if self._has_lost_login():
            return
        try:
            self._judge_again()
            self._look()
            is_ready = self._is_ready_to_send()
        except Exception as error:
            self._failed(error)
            return
        if is_ready:
            self._fill()
        else:
            self._look_and_warm()

    def _has_lost_login(self) -> bool:
        """Whether there was one, which ended during the wait: then nothing is told any more."""
        login = self._connection.login
        if login is None or not login.has_ended:
            return False
        self._connection.close("a fetch that waited for longer than the login lasted")
        return True

    def _judge_again(self) -> None:
        """A wait may be long: what was allowed when it began may not be any more."""
        version = self._handler.rights.authorizer.version
        if version != self._rules_version:
            self._rules_version = version
            self._judged = self._handler.judged(self._connection, self._items)

    def _cancel(self) -> None:
        """The wait is over, or nobody is there any more to be told."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._watched:
            (partition.stable_waits if self._is_committed_only else partition.fetch_waits).pop(self, None)

    def _is_ready_to_send(self) -> bool:
        return not self._lacks_aborted and all(
            not found.unverified and found.file.is_cached(found.position, found.size_bytes)
            for _, _, found in self._ranges
        )

    def _is_cold(self) -> bool:
        """Whether finding the records of some partition may have to wait for the disk."""
        for item in self._items:
            partition = self._handler.partitions.get(item.name)
            if partition is not None:
                end_offset = partition.last_stable_offset if self._is_committed_only else partition.high_watermark
                is_there = partition.log.start_offset <= item.fetch_offset < end_offset
                if is_there and not partition.log.is_warm(item.fetch_offset, item.max_bytes):
                    return True
        return False

    def _look_and_warm(self) -> None:
        reading = asyncio.ensure_future(self._handler.disk.run("read", self._warm))
        reading.add_done_callback(self._warmed)

    def _warm(self) -> None:
        """In a thread: find the ranges, bring them into memory and check them; what is bad is not served."""
        self._look(may_wait=True)
        for answer, partition, found in self._ranges:
            problem = None
            try:
                if found.unverified:
                    problem = found.verify()
                elif not found.file.is_cached(found.position, found.size_bytes):
                    found.file.read(found.size_bytes, found.position)
            except OSError as error:
                problem = str(error)
            if problem is not None:
                logger.error("%s: a stored range is bad and is not served: %s", partition.name, problem)
                answer.records = None
                answer.error = Error.KAFKA_STORAGE_ERROR
                self._problems.append((partition, problem))

    def _warmed(self, reading: asyncio.Future[None]) -> None:
        for partition, problem in self._problems:
            partition.record("corruption_found", partition=partition.name, problem=problem, found_by="a fetch")
        self._problems.clear()
        if reading.cancelled() or self._connection.is_closed:
            return
        error = reading.exception()
        if error is None:
            self._fill()
        else:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        """A bug of ours: nobody is left waiting for an answer that will not come."""
        logger.error("a fetch failed", exc_info=error)
        self._connection.close("a fetch failed here; see the log")

    # ── answering ────────────────────────────────────────────────────────────────────────────────────────────────

    def _fill(self) -> None:
        assert self._slot is not None
        self._connection.fill(self._slot, self._response())

    def _response(self) -> Response:
        quotas = self._handler.quotas
        throttle_ms = 0
        if quotas is not None and quotas.is_limiting:
            size_bytes = sum(found.size_bytes for answer, _, found in self._ranges if answer.records is not None)
            throttle_ms, is_empty = quotas.fetched(self._connection, size_bytes)
            if is_empty:
                return self._nothing_yet(throttle_ms)
        topics: dict[object, TopicAnswer[FileRange]] = {}
        session = self._session
        is_misled = False
        for answer, partition, found in self._ranges:
            if answer.records is not None:
                partition.log.fetched_bytes += found.size_bytes
        for item, answer in self._answers:
            if answer.error is not Error.NONE:
                self._handler.counts.refused(answer.error)
                is_misled = is_misled or answer.error in _MISLED
            if session is not None:
                item.told_high_watermark = answer.high_watermark
                item.told_log_start_offset = answer.log_start_offset
                item.told_error = answer.error is not Error.NONE
                if answer.records is not None:
                    session.served(item)
            topic = topics.get(item.topic_key)
            if topic is None:
                topic_id = item.topic_key if isinstance(item.topic_key, UUID) else NO_ID
                topic = topics[item.topic_key] = TopicAnswer(item.name.topic, topic_id, [])
            topic.partitions.append(answer)
        session_id = session.session_id if session is not None else 0
        return encode_fetch_response(
            self._version,
            self._correlation_id,
            list(topics.values()),
            throttle_ms=throttle_ms,
            session_id=session_id,
            endpoints=self._name_leaders() if is_misled and self._version >= ENDPOINTS_SINCE else (),
        )

    def _nothing_yet(self, throttle_ms: int) -> Response:
        """For a consumer over its quota. Where it began a session, it begins another: it was told of no partition."""
        session = self._session
        if session is not None and self._is_full:
            self._handler.sessions.close(session.session_id)
            session = None
        session_id = session.session_id if session is not None else 0
        return encode_fetch_response(
            self._version, self._correlation_id, [], throttle_ms=throttle_ms, session_id=session_id
        )

    def _name_leaders(self) -> list[EndpointAnswer]:
        """Who came to the wrong broker hears which is the right one."""
        if self._handler.leaders_on is None:
            return []
        leaders = self._handler.leaders_on(self._connection.listener_name)
        endpoints: dict[int, EndpointAnswer] = {}
        for item, answer in self._answers:
            found = leaders.find(*item.name) if answer.error in _MISLED else None
            if found is not None:
                node = found.node
                answer.current_leader = node.node_id, found.epoch
                endpoints[node.node_id] = EndpointAnswer(node.node_id, node.host, node.port, node.rack)
        return list(endpoints.values())


def _parting(item: FetchedPartition, partition: Partition) -> tuple[int, int] | None:
    """Where a consumer's records part from the log, if they do. Only a leader can tell: a follower may be behind."""
    try:
        found = parting_of(partition, item.fetch_offset, item.last_fetched_epoch)
    except ApiError:
        if partition.leader is None:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER) from None
        raise
    if found is not None and partition.leader is None:
        raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
    return found
