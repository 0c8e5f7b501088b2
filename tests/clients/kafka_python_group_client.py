"""kafka-python in groups and with transactions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import Any

from penstock.base.identifiers import TopicPartition

from .client import DEADLINE_S, Client, Message, Refused
from .group_client import (
    COOPERATIVE,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    TRANSACTION_TIMEOUT_MS,
    GroupClient,
    Member,
    MemberOptions,
    NobodyWatches,
    TransactionalProducer,
    Watcher,
)
from .kafka_python_client import DEADLINE_MS, KafkaPythonClient, KafkaPythonProducer, message_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by a deprecated call
    from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata
    from kafka import TopicPartition as Partition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaConnectionError, KafkaError

JOINING_POLL_MS = 200
JOINING_POLLS_MAX = 50
_ASSIGNORS = {
    RANGE: RangePartitionAssignor,
    ROUND_ROBIN: RoundRobinPartitionAssignor,
    STICKY: StickyPartitionAssignor,
    COOPERATIVE: CooperativeStickyAssignor,
}


def _plain(partitions: Iterable[Partition]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in partitions]


def _offsets(offsets: Mapping[TopicPartition, int]) -> dict[Partition, OffsetAndMetadata]:
    return {Partition(*where): OffsetAndMetadata(offset, "", -1) for where, offset in offsets.items()}


def refused(error: BaseException) -> Refused:
    code = getattr(error, "errno", None)
    return Refused(code if isinstance(code, int) else -1, repr(error))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise refused(error) from error


class _Listener(ConsumerRebalanceListener):
    def __init__(self, member: KafkaPythonMember, watcher: Watcher) -> None:
        self._member = member
        self._watcher = watcher

    def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None:
        self._watcher.assigned(_plain(assigned), self._member.consumer.group_metadata().generation_id)

    def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None:
        self._watcher.revoked(_plain(revoked))

    def on_partitions_lost(self, lost: Iterable[Partition]) -> None:
        self._watcher.lost(_plain(lost))


class KafkaPythonMember(Member):
    def __init__(self, watcher: Watcher, **settings: Any) -> None:
        self._watcher = watcher
        self._never = Event()
        self.consumer = KafkaConsumer(**settings)

    def subscribe(self, options: MemberOptions) -> None:
        listener = _Listener(self, self._watcher)
        if options.pattern is not None:
            self.consumer.subscribe(pattern=re.compile(options.pattern), listener=listener)
        else:
            self.consumer.subscribe(list(options.topics), listener=listener)

    def poll(self, timeout_s: float) -> list[Message]:
        try:
            batches = self.consumer.poll(timeout_ms=int(timeout_s * 1000))
            for _ in range(JOINING_POLLS_MAX):
                if batches or not self._is_joining():
                    break
                batches = self.consumer.poll(timeout_ms=JOINING_POLL_MS)
        except KafkaConnectionError:  # it goes on when the broker is back
            self._never.wait(timeout_s)
            return []
        except KafkaError as error:
            raise refused(error) from error
        messages = [message_of(record) for records in batches.values() for record in records]
        self._watcher.given(messages)
        return messages

    def _is_joining(self) -> bool:
        """It forgets a join that outlasts a poll if what led to the join is over meanwhile."""
        coordinator = self.consumer._coordinator
        if coordinator.rejoining and not coordinator.need_rejoin():
            coordinator.request_rejoin()
        return bool(coordinator.rejoining)

    def assignment(self) -> set[TopicPartition]:
        return set(_plain(self.consumer.assignment()))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        with _refusals():
            self.consumer.commit(_offsets(offsets))

    def commit_later(self, offsets: Mapping[TopicPartition, int], on_done: Callable[[Exception | None], None]) -> None:
        def done(_: Any, answer: Any) -> None:
            on_done(refused(answer) if isinstance(answer, Exception) else None)

        self.consumer.commit_async(_offsets(offsets), callback=done)

    def committed(self, where: TopicPartition) -> int | None:
        with _refusals():
            offset: int | None = self.consumer.committed(Partition(*where), timeout_ms=DEADLINE_MS)
        return offset

    def seek(self, where: TopicPartition, offset: int) -> None:
        self.consumer.seek(Partition(*where), offset)

    def identity(self) -> Any:
        return self.consumer.group_metadata()

    def close(self) -> None:
        with _refusals():
            self.consumer.close(autocommit=False)


class KafkaPythonTransactionalProducer(KafkaPythonProducer, TransactionalProducer):
    def begin(self) -> None:
        with _refusals():
            self._producer.begin_transaction()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], identity: Any, group: str, timeout_s: float = DEADLINE_S
    ) -> None:
        with _refusals():
            self._producer.send_offsets_to_transaction(_offsets(offsets), identity)

    def commit(self, timeout_s: float = DEADLINE_S) -> None:
        with _refusals():
            self._producer.commit_transaction()

    def abort(self, timeout_s: float = DEADLINE_S) -> None:
        with _refusals():
            self._producer.abort_transaction()


class KafkaPythonGroups(GroupClient):
    name = "kafka-python"
    assignors = (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE)
    polls_tell_fencing = False

    @property
    def safe_assignors(self) -> tuple[str, ...]:
        """Its cooperative one may give a member that returns what it had at once, on Apache Kafka too."""
        return (RANGE, ROUND_ROBIN, STICKY)

    def __init__(self, plain: Client) -> None:
        assert isinstance(plain, KafkaPythonClient)
        super().__init__(plain)

    def join(self, options: MemberOptions, watcher: Watcher) -> Member:
        member = KafkaPythonMember(
            watcher,
            **self._settings(options.group),
            group_instance_id=options.instance_id,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            max_poll_interval_ms=options.max_poll_interval_ms,
            partition_assignment_strategy=[_ASSIGNORS[options.assignor or RANGE]],
            auto_offset_reset="none" if options.reset == "error" else options.reset,
            isolation_level="read_committed" if options.committed_only else "read_uncommitted",
        )
        member.subscribe(options)
        return member

    @contextmanager
    def outsider(self, group: str, partitions: Iterable[TopicPartition]) -> Iterator[Member]:
        member = KafkaPythonMember(NobodyWatches(), **self._settings(group))
        member.consumer.assign([Partition(*where) for where in partitions])
        try:
            yield member
        finally:
            member.close()

    @contextmanager
    def transactional_producer(
        self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> Iterator[TransactionalProducer]:
        producer = KafkaProducer(
            bootstrap_servers=self.plain.bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=1,
            max_block_ms=DEADLINE_MS,
            reconnect_backoff_max_ms=500,
            metrics_enabled=False,
        )
        try:
            with _refusals():
                producer.init_transactions()
            yield KafkaPythonTransactionalProducer(producer)
        finally:
            producer.close(DEADLINE_S)

    def _settings(self, group: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.plain.bootstrap,
            "group_id": group,
            "enable_auto_commit": False,
            "reconnect_backoff_max_ms": 500,
            "metadata_max_age_ms": 500,
            "fetch_max_wait_ms": 100,
            "metrics_enabled": False,
        }
