"""Produce (0-13): append batches. Versions 0 to 2 are advertised and refused: without them older librdkafka would turn
compression off.

Every request becomes a `_Produce` that lives until it is answered: it may have to wait for a sync, for the inside of
its batches to be looked at, for the coordinator of its transaction, or for its records to be committed. A request of
the common shape also leaves a `ProduceAgain` with its connection, for those like it that follow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.broker._produce_again import ProduceAgain
from penstock.broker.broker import Broker
from penstock.broker.connection import Connection, Response, Slot
from penstock.broker.handlers.known_leaders import KnownLeaders
from penstock.broker.partition import Partition
from penstock.broker.produce_waits import ProduceWaits, ProduceWay, told_after_append
from penstock.broker.request_counts import ApiCounts
from penstock.broker.requests import frame_of
from penstock.broker.rights import HotAsker
from penstock.broker.topics import INTERNAL_TOPICS
from penstock.broker.transactional_produce import TransactionalProduce, has_transactional_batch
from penstock.log.partition_log import Appended
from penstock.security.acls import Operation, ResourceType
from penstock.wire.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    check_produced_batch,
)
from penstock.wire.codec import decoder
from penstock.wire.compression import Compression
from penstock.wire.conform import conform
from penstock.wire.messages.k00_produce import (
    API,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponseLeaderIdAndEpoch,
    ProduceResponseNodeEndpoint,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from penstock.wire.produce_shape import FIRST_SHAPED_VERSION, FLEXIBLE_SINCE, TOPIC_IDS_SINCE, answer_shape, head_end_of

logger = logging.getLogger(__name__)

FIRST_SERVED_VERSION = 3
ZSTD_SINCE = 7
NAMES_LEADER_SINCE = 10

_Part = tuple[ProduceRequestTopic, ProduceRequestPartition, ProduceResponsePartition]
_Found = tuple[Partition, ProduceRequestPartition, ProduceResponsePartition]


class Produce:
    """The handler; one for a broker."""

    def __init__(self, broker: Broker, counts: ApiCounts) -> None:
        self.broker = broker
        self.counts = counts
        self.rights = broker.rights
        self.partitions = broker.partitions
        self.disk = broker.world.disk
        self.wall_ms = broker.world.clock.wall_ms
        self.asking: set[asyncio.Future[None]] = set()  # transactions whose coordinator is being asked
        self.waits = ProduceWaits(broker.world.clock, counts)
        self.quotas = broker.quotas

    def __call__(
        self, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
    ) -> Response | None:
        request, _ = decoder(ProduceRequest, version)(frame, position)
        is_ordinary = request.transactional_id is None and not has_transactional_batch(request)
        kind = _Produce if is_ordinary else _ProduceInTransaction
        produce = kind(self, connection, version, correlation_id, request)
        if self.quotas.is_limiting:
            produce.throttle_ms = self.quotas.produced(connection, len(frame))
        response = produce.run()
        if produce.is_appended and version >= FIRST_SHAPED_VERSION:
            self._remember(connection, version, frame, request)
        return response

    def asker(self, connection: Connection) -> HotAsker:
        return HotAsker(connection.principal, connection.peer.host, API.key)

    def _may_go_on(self, connection: Connection, topic: str, transactional_id: str | None) -> bool:
        """Whether requests like this one need not be judged again, until a rule changes."""
        if not self.rights.is_on:
            return True
        who = self.asker(connection)
        is_allowed = self.rights.allows(who, Operation.WRITE, ResourceType.TOPIC, topic, is_told=False)
        if not is_allowed or transactional_id is None:
            return is_allowed
        return self.rights.allows(who, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id, is_told=False)

    def _remember(self, connection: Connection, version: int, frame: memoryview, request: ProduceRequest) -> None:
        """Leave a shortcut for requests like this one, if it is of the common shape."""
        topic = request.topic_data[0] if len(request.topic_data) == 1 else None
        if topic is None or len(topic.partition_data) != 1:
            return
        data = topic.partition_data[0]
        by_id = version >= TOPIC_IDS_SINCE
        name = self.partitions.name_of_id(topic.topic_id) if by_id else topic.name
        partition = self.partitions.get(TopicPartition(name or "", data.index))
        head_end = head_end_of(frame, len(data.records or b""), version)
        if partition is None or head_end is None or request.acks not in (1, -1) or name in INTERNAL_TOPICS:
            return
        if not self._may_go_on(connection, partition.name.topic, request.transactional_id):
            return
        wait = None
        if request.acks == -1:
            refusal = partial(_refusal, version, topic.name, topic.topic_id, data.index)
            wait = ProduceWay(self.waits, connection, partition, request.timeout_ms, refusal).begin
        shape = answer_shape(version, topic.topic_id.bytes if by_id else topic.name.encode())
        append = self.append if request.transactional_id is None else self._append_to_open
        is_free = self.quotas.produces_freely(connection)
        is_flexible = version >= FLEXIBLE_SINCE
        again = ProduceAgain(frame, head_end, append, partition, shape, wait, is_flexible=is_flexible, is_free=is_free)
        connection.remember(head_end, again.head, again)

    def append(self, partition: Partition, records: memoryview) -> Appended:
        """Check one batch as it came from a producer, and append it."""
        header = check_produced_batch(records)
        if header.attributes & (CONTROL | TRANSACTIONAL):
            if header.attributes & CONTROL:
                raise ApiError(Error.INVALID_RECORD, "a producer may not write control batches")
            raise _without_transactional_id()
        return partition.append(records, header, self.wall_ms())

    def _append_to_open(self, partition: Partition, records: memoryview) -> Appended:
        """The same for one more batch of a transaction that is open in the partition; ApiError for any other."""
        header = check_produced_batch(records)
        is_open = partition.log.producers.is_open(header.producer_id, header.producer_epoch)
        if not is_open or header.attributes & (CONTROL | TRANSACTIONAL) != TRANSACTIONAL:
            raise ApiError(Error.INVALID_TXN_STATE)
        return partition.append(records, header, self.wall_ms())


class _Produce:
    """One request on the general way, until it is answered."""

    def __init__(
        self, handler: Produce, connection: Connection, version: int, correlation_id: int, request: ProduceRequest
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._request = request
        self._answers = [ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id) for topic in request.topic_data]
        self.throttle_ms = 0  # for how long the producer is held, because of its quota
        self._unappended = 0
        self._uncommitted: dict[int, tuple[Partition, ProduceResponsePartition, Callable[[Error], None]]] = {}
        self._slot: Slot | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_appended(self) -> bool:
        """Whether nothing has to happen any more before the append; it may have been refused."""
        return not self._unappended

    def run(self) -> Response | None:
        """Append what can be appended; the response if that was all, otherwise None and it follows later."""
        parts = []
        for topic, answers in zip(self._request.topic_data, self._answers, strict=True):
            for data in topic.partition_data:
                answer = ProduceResponsePartition(index=data.index)
                answers.partition_responses.append(answer)
                parts.append((topic, data, answer))
        self._begin(parts)
        if self._unappended or self._uncommitted:
            self._slot = self._connection.reserve()
            if self._unappended:
                self._connection.hold()
            if self._uncommitted:
                self._start_timer()
            return None
        return self._response()

    def _begin(self, parts: list[_Part]) -> None:
        for topic, data, answer in parts:
            try:
                partition = self._find(topic, data)
            except ApiError as error:
                self._refuse(answer, error)
            else:
                self._begin_append(partition, data, answer)

    def _begin_append(
        self, partition: Partition, data: ProduceRequestPartition, answer: ProduceResponsePartition
    ) -> None:
        if partition.config.inside:
            self._unappended += 1
            self._conform(partition, data, answer)
        elif partition.is_syncing:
            self._unappended += 1
            partition.when_writable(lambda: self._append_later(partition, data, answer))
        else:
            self._append(partition, data, answer)

    def _conform(self, partition: Partition, data: ProduceRequestPartition, answer: ProduceResponsePartition) -> None:
        """The topic asks something of the records: see to it beside the loop, then append."""
        assert data.records is not None
        work = partial(conform, memoryview(data.records), partition.config.inside)

        def conformed(done: asyncio.Future[memoryview]) -> None:
            error = None if done.cancelled() else done.exception()
            if isinstance(error, ApiError):
                self._refuse(answer, error)
                self._one_less_to_append()
            elif error is None and not done.cancelled():
                data.records = done.result()
                self._append_later(partition, data, answer)
            else:
                self._connection.close("the records could not be looked at")

        asyncio.ensure_future(self._handler.disk.run("read", work)).add_done_callback(conformed)

    def _find(self, topic: ProduceRequestTopic, data: ProduceRequestPartition) -> Partition:
        if self._version < FIRST_SERVED_VERSION:
            raise ApiError(Error.UNSUPPORTED_VERSION, f"produce is served from version {FIRST_SERVED_VERSION} on")
        if self._request.acks not in (0, 1, -1):
            raise ApiError(Error.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1, not {self._request.acks}")
        self._check_may_write(topic)
        if data.records is None:
            raise ApiError(Error.INVALID_RECORD, "there are no records for this partition")
        if self._version >= TOPIC_IDS_SINCE:
            partition = self._handler.partitions.find_led_by_id(topic.topic_id, data.index)
        else:
            partition = self._handler.partitions.find_led(topic.name, data.index)
        if partition.name.topic in INTERNAL_TOPICS:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, f"only the broker itself writes to {partition.name.topic}")
        return partition

    def _check_may_write(self, topic: ProduceRequestTopic) -> None:
        rights = self._handler.rights
        if rights.is_on:
            by_id = self._version >= TOPIC_IDS_SINCE
            name = self._handler.partitions.name_of_id(topic.topic_id) if by_id else topic.name
            if name is not None:
                rights.check(self._handler.asker(self._connection), Operation.WRITE, ResourceType.TOPIC, name)

    def _append(self, partition: Partition, data: ProduceRequestPartition, answer: ProduceResponsePartition) -> None:
        assert data.records is not None
        records = memoryview(data.records)
        try:
            if self._version < ZSTD_SINCE and _is_zstd(records):
                raise ApiError(Error.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs produce version {ZSTD_SINCE}")
            if self._request.acks == -1:
                partition.check_enough_in_sync()
            appended = self._append_batch(partition, records)
        except ApiError as error:
            self._refuse(answer, error)
            return
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = partition.log.start_offset
        if self._request.acks == -1 and appended.last_offset >= partition.high_watermark:
            self._wait_for_commit(partition, appended.last_offset + 1, answer)

    def _append_batch(self, partition: Partition, records: memoryview) -> Appended:
        return self._handler.append(partition, records)

    def _append_later(
        self, partition: Partition, data: ProduceRequestPartition, answer: ProduceResponsePartition
    ) -> None:
        if partition.is_gone:
            self._refuse(answer, ApiError(Error.NOT_LEADER_OR_FOLLOWER))
        elif partition.is_syncing:
            partition.when_writable(lambda: self._append_later(partition, data, answer))
            return
        else:
            self._append(partition, data, answer)
        self._one_less_to_append()

    def _one_less_to_append(self) -> None:
        self._unappended -= 1
        if not self._unappended:
            if self._uncommitted:
                self._start_timer()
            self._finish_if_done()
            self._connection.release()

    def _wait_for_commit(self, partition: Partition, end_offset: int, answer: ProduceResponsePartition) -> None:
        number = len(self._uncommitted)

        def committed(error: Error) -> None:
            del self._uncommitted[number]
            if error is not Error.NONE:
                self._refuse(answer, ApiError(told_after_append(error)))
            self._finish_if_done()

        while number in self._uncommitted:
            number += 1
        self._uncommitted[number] = (partition, answer, committed)
        partition.when_committed(end_offset, committed)

    def _start_timer(self) -> None:
        timeout_s = max(self._request.timeout_ms, 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_is_over)

    def _time_is_over(self) -> None:
        for partition, answer, callback in self._uncommitted.values():
            partition.forget_commit_waits((callback,))
            self._refuse(answer, ApiError(Error.REQUEST_TIMED_OUT))
        self._uncommitted.clear()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._unappended or self._uncommitted or self._slot is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        slot, self._slot = self._slot, None
        self._connection.fill_soon(slot, self._response())

    def _refuse(self, answer: ProduceResponsePartition, error: ApiError) -> None:
        self._handler.counts.refused(error.error)
        _refuse(answer, error)

    def _response(self) -> Response | None:
        if self._request.acks == 0:
            self._close_on_error()
            return None
        answer = ProduceResponse(responses=self._answers, throttle_time_ms=self.throttle_ms)
        if self._version >= NAMES_LEADER_SINCE:
            self._name_leaders(answer)
        return frame_of(answer, API, self._version, self._correlation_id)

    def _name_leaders(self, response: ProduceResponse) -> None:
        """Who came to the wrong broker hears which is the right one."""
        refused = [
            (topic, part)
            for topic in self._answers
            for part in topic.partition_responses
            if part.error_code == Error.NOT_LEADER_OR_FOLLOWER
        ]
        if not refused:
            return
        leaders = KnownLeaders(self._handler.broker, self._connection.listener_name)
        endpoints: dict[int, ProduceResponseNodeEndpoint] = {}
        for topic, part in refused:
            found = leaders.find(topic.name or self._handler.partitions.name_of_id(topic.topic_id), part.index)
            if found is not None:
                node = found.node
                part.current_leader = ProduceResponseLeaderIdAndEpoch(leader_id=node.node_id, leader_epoch=found.epoch)
                endpoints[node.node_id] = ProduceResponseNodeEndpoint(
                    node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
                )
        response.node_endpoints = list(endpoints.values())

    def _close_on_error(self) -> None:
        """acks=0 gets no answer at all; only a closed connection tells the producer to look again."""
        for topic in self._answers:
            for answer in topic.partition_responses:
                if answer.error_code:
                    where = f"{topic.name or topic.topic_id}-{answer.index}"
                    self._connection.close(f"a produce with acks=0 to {where}: {answer.error_message}")
                    return


class _ProduceInTransaction(_Produce):
    """A request with a transactional id: partitions that are new to the transaction are verified before the append."""

    _transaction: TransactionalProduce

    def _begin(self, parts: list[_Part]) -> None:
        try:
            found = self._find_all(parts)
        except ApiError as error:
            for _, _, answer in parts:
                self._refuse(answer, error)
            return
        if self._transaction.must_ask():
            self._unappended += len(found)
            asking = asyncio.ensure_future(self._transaction.ask())
            self._handler.asking.add(asking)
            asking.add_done_callback(partial(self._asked, found))
        else:
            for partition, data, answer in found:
                if not self._is_refused(partition, answer):
                    self._begin_append(partition, data, answer)

    def _find_all(self, parts: list[_Part]) -> list[_Found]:
        """The partitions that are here; ApiError if the whole request is wrong."""
        if self._request.transactional_id is None:
            raise _without_transactional_id()
        transactional_id = self._request.transactional_id
        who = self._handler.asker(self._connection)
        self._handler.rights.check(who, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        self._transaction = TransactionalProduce(self._handler.broker, self._request.transactional_id, self._version)
        found: list[_Found] = []
        for topic, data, answer in parts:
            try:
                partition = self._find(topic, data)
            except ApiError as error:
                self._refuse(answer, error)
                continue
            self._transaction.take(partition, memoryview(data.records or b""))
            found.append((partition, data, answer))
        return found

    def _asked(self, found: list[_Found], asking: asyncio.Future[None]) -> None:
        self._handler.asking.discard(asking)
        error = None if asking.cancelled() else asking.exception()
        if error is not None:
            logger.error("a transaction could not be verified", exc_info=error)
        if error is not None or asking.cancelled():
            self._connection.close("a transaction could not be verified")
            return
        for partition, data, answer in found:
            if self._is_refused(partition, answer):
                self._one_less_to_append()
            elif partition.config.inside:
                self._conform(partition, data, answer)
            else:
                self._append_later(partition, data, answer)

    def _is_refused(self, partition: Partition, answer: ProduceResponsePartition) -> bool:
        error = self._transaction.error_of(partition)
        if error is not None:
            self._refuse(answer, error)
        return error is not None

    def _append_batch(self, partition: Partition, records: memoryview) -> Appended:
        header = check_produced_batch(records)
        if header.attributes & CONTROL:
            raise ApiError(Error.INVALID_RECORD, "a producer may not write control batches")
        return self._transaction.append(partition, records, header, self._handler.wall_ms())


def _without_transactional_id() -> ApiError:
    return ApiError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "records of a transaction need its transactional id")


def _is_zstd(records: memoryview) -> bool:
    return len(records) >= HEADER_SIZE and records[ATTRIBUTES_OFFSET + 1] & COMPRESSION_MASK == Compression.ZSTD


def _refuse(answer: ProduceResponsePartition, error: ApiError) -> None:
    answer.error_code = error.error
    answer.error_message = error.message
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def _refusal(version: int, name: str, topic_id: UUID, index: int, correlation_id: int, error: Error) -> Response:
    """The whole answer to a request for one partition."""
    answer = ProduceResponsePartition(index=index)
    _refuse(answer, ApiError(error))
    row = ProduceResponseTopic(name=name, topic_id=topic_id, partition_responses=[answer])
    return frame_of(ProduceResponse(responses=[row]), API, version, correlation_id)
