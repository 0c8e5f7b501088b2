"""Batches on their way to the leaders of their partitions: who gets which request, and what the answers mean.

Each partition has a lane (`lanes.py`), which keeps the order. Lanes that are ready and have the same leader share a
request, and each leader has a few requests in flight. There is no thread: requests leave and answers are taken while
the caller adds batches or waits. Whoever adds more than may be on its way waits for answers.

A failure that may pass is tried again until the delivery timeout. Any other ends the sender: what is still on its way
cannot be put in order any more, and the caller is told at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.columnar.cluster import UNKNOWN_GRACE_S, Cluster
from penstock.columnar.connection import Connection, Pending
from penstock.columnar.errors import (
    BrokerAway,
    ColumnarError,
    Fenced,
    RecordTooLarge,
    Refused,
    TopicGone,
    UnknownTopic,
    error_of,
)
from penstock.columnar.errors import refused as refusal_of
from penstock.columnar.lanes import Batch, Lane, Seal
from penstock.columnar.produce_request import PartitionRecords, produce_parts
from penstock.columnar.transactions import FENCING, TAKEN_OVER, Identity
from penstock.wire.compression import Compression
from penstock.wire.messages.k00_produce import API as PRODUCE
from penstock.wire.messages.k00_produce import ProduceResponse, ProduceResponsePartition

IN_FLIGHT_MAX = 5  # for each leader; brokers remember as many batches of a producer
REQUEST_BYTES = 1 << 20  # so much is worth a request; larger ones are made of batches that are ready together
REQUEST_BYTES_MAX = 8 << 20
REQUEST_PARTITIONS_MAX = 256  # the system takes at most 1024 buffers in one call
PRODUCE_VERSION_MAX = 12
IDLE_S = 1.0
BROKER_TIMEOUT_SHARE = 0.9  # of our own, so that the broker's answer is the one that counts

_TOO_LARGE = frozenset({Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE})
_LOST = {
    Error.OUT_OF_ORDER_SEQUENCE_NUMBER: "rows that it had acknowledged are missing in it",
    Error.UNKNOWN_PRODUCER_ID: "it has forgotten this producer, because all rows of it were deleted",
}


@dataclass(slots=True, eq=False)
class _Request:
    connection: Connection
    pending: Pending
    lanes: list[Lane]
    sent_s: float


class BatchTooLarge(RecordTooLarge):
    """A broker does not take a batch."""

    def __init__(self, where: TopicPartition, size_bytes: int, rows: int) -> None:
        super().__init__(str(where), size_bytes, 0)
        self.args = where, size_bytes, rows
        self.topic_partition = where
        self.rows = rows

    def __str__(self) -> str:
        rows = "one row" if self.rows == 1 else f"{self.rows} rows"
        advice = "" if self.rows == 1 else ", or write with smaller batches (batch_bytes)"
        return (
            f"topic {self.topic_partition.topic}, partition {self.topic_partition.partition}: a batch of "
            f"{self.size_bytes} bytes with {rows} is larger than the broker takes; "
            f"set max.message.bytes of the topic higher{advice}"
        )


class Sender:
    """See the head of this file."""

    def __init__(self, cluster: Cluster, identity: Identity, *, acks: int, compression: Compression) -> None:
        self.unacknowledged_bytes = 0
        self.acknowledged_bytes = 0
        self._cluster = cluster
        self._identity = identity
        self._acks = acks
        self._compression = compression
        self._settings = cluster.settings
        self._timeout_ms = max(1, int(cluster.settings.request_timeout_s * 1000 * BROKER_TIMEOUT_SHARE))
        self._lanes: dict[TopicPartition, Lane] = {}
        self._busy: dict[TopicPartition, Lane] = {}  # those with something on its way
        self._in_flight: dict[Connection, deque[_Request]] = {}
        self._routes: dict[TopicPartition, Connection] = {}  # where a lane's last batch went
        self._unsent_bytes = 0  # added since batches were last sent
        self._seal = Seal(identity.producer, compression, identity.transactional_id is not None)

    @property
    def partitions(self) -> int:
        """How many have been written to."""
        return len(self._lanes)

    def add(self, where: TopicPartition, batch: Batch) -> None:
        """One more batch, to be sent after those before it; they leave when a request is worth it."""
        lane = self._lanes.get(where)
        if lane is None:
            settings = self._settings
            lane = self._lanes[where] = Lane(where, settings.backoff_s, settings.backoff_max_s)
        self._busy[where] = lane
        lane.waiting.append(batch)
        self.unacknowledged_bytes += batch.size_bytes
        self._unsent_bytes += batch.size_bytes
        if self._unsent_bytes >= REQUEST_BYTES:
            self._step()

    def wait_until_below(self, unacknowledged_bytes: int) -> None:
        """Wait until at most so much is on its way; 0 waits for everything."""
        while self.unacknowledged_bytes > unacknowledged_bytes:
            self._step()
            if self.unacknowledged_bytes > unacknowledged_bytes:
                self._wait()

    def new_epoch(self) -> None:
        """The identity has a new epoch. Nothing is on its way."""
        self._seal = Seal(self._identity.producer, self._compression, self._identity.transactional_id is not None)
        for lane in self._lanes.values():
            lane.new_epoch()

    def wait_for_answers(self) -> None:
        """Wait until what is in flight has been answered, however, or cannot be any more."""
        for requests in self._in_flight.values():
            with suppress(OSError):
                for request in requests:
                    request.pending.wait()

    def forget(self) -> None:
        """Nothing more is sent of what was added, and nobody looks at answers any more."""
        for lane in self._busy.values():
            lane.forget()
        self._busy.clear()
        self._in_flight.clear()
        self.unacknowledged_bytes = self._unsent_bytes = 0

    # ── one step ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self) -> None:
        """Take the answers that are there, and send what can be sent."""
        self._take_answers()
        self._unsent_bytes = 0
        now = time.monotonic()
        self._check_deadlines(now)
        ready = [lane for lane in self._busy.values() if lane.may_send(now)]
        if ready:
            self._identity.before_writing(lane.where for lane in ready)
            for connection, lanes in self._by_leader(ready).items():
                self._send_to(connection, lanes)

    def _by_leader(self, lanes: Iterable[Lane]) -> dict[Connection, list[Lane]]:
        """Without those that still have something in flight to a former leader."""
        found: dict[Connection, list[Lane]] = {}
        for lane in lanes:
            connection = self._leader(lane)
            if connection is None:
                continue
            if not lane.in_flight or self._routes[lane.where] is connection:
                self._routes[lane.where] = connection
                found.setdefault(connection, []).append(lane)
        return found

    def _leader(self, lane: Lane) -> Connection | None:
        """None if it cannot be reached now; the others need not wait for it."""
        where = lane.where
        try:
            return self._cluster.once(lambda: self._cluster.leader(where))
        except ApiError as error:
            if not error.error.retriable:
                raise refusal_of(f"could not {_writing_to(where)}", error) from error
            lane.postpone(error, time.monotonic())
        except OSError as error:
            lane.postpone(error, time.monotonic())
        self._cluster.stale(where)
        return None

    def _send_to(self, connection: Connection, lanes: list[Lane]) -> None:
        requests = self._in_flight.setdefault(connection, deque())
        now = time.monotonic()
        while len(requests) < IN_FLIGHT_MAX and lanes:
            chosen = list(_for_one_request(lanes))
            try:
                pending = self._send(connection, [(lane.where, lane.send(self._seal)) for lane in chosen])
            except OSError as error:
                self._lose(connection, error, chosen)
                return
            except BaseException:  # Ctrl-C: half a request may have left
                connection.close()
                raise
            requests.append(_Request(connection, pending, chosen, time.monotonic()))
            lanes = [lane for lane in lanes if lane.may_send(now)]

    def _send(self, connection: Connection, batches: Iterable[tuple[TopicPartition, Batch]]) -> Pending:
        topics: dict[str, list[PartitionRecords]] = {}
        for where, batch in batches:
            topics.setdefault(where.topic, []).append(PartitionRecords(where.partition, batch.header, batch.records))
        identity = self._identity
        version = connection.version_of(PRODUCE, min(PRODUCE_VERSION_MAX, identity.produce_version()))
        parts = produce_parts(version, identity.transactional_id, self._acks, self._timeout_ms, topics)
        return connection.send_parts(PRODUCE, version, parts)

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_answers(self) -> None:
        """Those that are there."""
        for connection, requests in list(self._in_flight.items()):
            try:
                while requests and requests[0].pending.ready():
                    answer = requests[0].pending.wait()
                    self._take_answer(requests.popleft(), answer)
            except OSError as error:
                self._lose(connection, error)
            if not requests:
                self._in_flight.pop(connection, None)

    def _take_answer(self, request: _Request, answer: ProduceResponse) -> None:
        now = time.monotonic()
        rows = {
            TopicPartition(topic.name, row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        for lane in request.lanes:
            row = rows.get(lane.where)
            error = ApiError(Error.UNKNOWN_SERVER_ERROR, "the broker's answer leaves it out")
            self._settle(lane, _error_in(row) if row is not None else error, now)

    def _settle(self, lane: Lane, error: ApiError | None, now: float) -> None:
        batch = lane.in_flight[0]
        try:
            is_done = lane.answer(error, now) is not None
        except ApiError as end:
            raise self._end(lane.where, batch, end) from end
        if is_done:
            self.unacknowledged_bytes -= batch.size_bytes
            self.acknowledged_bytes += batch.size_bytes
            if lane.is_empty:
                del self._busy[lane.where]
        else:
            self._cluster.stale(lane.where)

    def _lose(self, connection: Connection, error: OSError, unsent: Iterable[Lane] = ()) -> None:
        """The connection has ended, and with it all requests that it had."""
        now = time.monotonic()
        requests = self._in_flight.pop(connection, deque())
        for lane in dict.fromkeys((*(lane for request in requests for lane in request.lanes), *unsent)):
            lane.lose_connection(error, now)
            self._cluster.stale(lane.where)

    # ── waiting and giving up ────────────────────────────────────────────────────────────────────────────────────

    def _wait(self) -> None:
        """For the oldest answer, or until something may be sent again."""
        now = time.monotonic()
        again_s = min((lane.not_before for lane in self._busy.values() if lane.not_before > now), default=now + IDLE_S)
        oldest = min((requests[0] for requests in self._in_flight.values()), key=_when_sent, default=None)
        if oldest is None:
            if not any(lane.may_send(now) for lane in self._busy.values()):
                time.sleep(again_s - now)
            return
        timeout_s = oldest.sent_s + self._settings.request_timeout_s
        try:
            if not oldest.pending.ready(max(0.0, min(again_s, timeout_s) - now)) and time.monotonic() >= timeout_s:
                oldest.pending.wait()  # ends the connection
        except OSError as error:
            self._lose(oldest.connection, error)

    def _check_deadlines(self, now: float) -> None:
        limit_s = self._settings.delivery_timeout_s
        for lane in self._busy.values():
            failure, since_s = lane.failure, lane.failing_since
            if failure is None or since_s is None:
                continue
            is_over = now - since_s >= limit_s
            what = f"could not {_writing_to(lane.where)} within {limit_s:g} s"
            if isinstance(failure, UnknownTopic) and (is_over or now - since_s >= UNKNOWN_GRACE_S):
                raise TopicGone(failure.topic, failure.why)
            if is_over and isinstance(failure, ApiError):
                raise Refused(what, failure.error, failure.message)
            if is_over:
                raise BrokerAway(f"{what}; the last reason: {failure}")

    def _end(self, where: TopicPartition, batch: Batch, error: ApiError) -> ColumnarError:
        """An error that will not pass, in words."""
        what = f"could not {_writing_to(where)}"
        if error.error in FENCING and self._identity.transactional_id is not None:
            return Fenced(self._identity.transactional_id, TAKEN_OVER)
        if error.error in _TOO_LARGE:
            return BatchTooLarge(where, batch.size_bytes, batch.count)
        if error.error in _LOST:
            return Refused(f"{what}: {_LOST[error.error]}", error.error, error.message)
        return refusal_of(what, error)


def _for_one_request(lanes: Iterable[Lane]) -> Iterator[Lane]:
    """So many that the request is not too large; always one."""
    size_bytes = 0
    for lane in islice(lanes, REQUEST_PARTITIONS_MAX):
        if size_bytes and size_bytes + lane.waiting[0].size_bytes > REQUEST_BYTES_MAX:
            return
        size_bytes += lane.waiting[0].size_bytes
        yield lane


def _error_in(row: ProduceResponsePartition) -> ApiError | None:
    if not row.error_code:
        return None
    reasons = (each.batch_index_error_message for each in row.record_errors)
    return ApiError(error_of(row.error_code), row.error_message or next(filter(None, reasons), None))


def _writing_to(where: TopicPartition) -> str:
    return f"write to topic {where.topic}, partition {where.partition}"


def _when_sent(request: _Request) -> float:
    return request.sent_s
