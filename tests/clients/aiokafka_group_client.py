"""aiokafka in groups and with transactions. It reads and rebalances on a loop in another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import TopicPartition as Partition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaConnectionError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from penstock.base.identifiers import TopicPartition

from .aiokafka_client import AiokafkaClient, AiokafkaTestProducer, Runner, message_of
from .client import DEADLINE_S, Client, Message, Refused
from .group_client import (
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

RECONNECT_S = 0.1
#: It goes on by itself after this error, which a group that changes its protocol gives to members that are joining.
JOINS_AGAIN = "RebalanceInProgressError"
_ASSIGNORS = {RANGE: RangePartitionAssignor, ROUND_ROBIN: RoundRobinPartitionAssignor, STICKY: StickyPartitionAssignor}


def _plain(partitions: Iterable[Partition]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in partitions]


def _offsets(offsets: Mapping[TopicPartition, int]) -> dict[Partition, OffsetAndMetadata]:
    return {Partition(*where): OffsetAndMetadata(offset, "") for where, offset in offsets.items()}


def refused(error: BaseException) -> Refused:
    """A failed commit has no code of its own, but a cause that has one."""
    for one in (error, error.__cause__):
        if isinstance(code := getattr(one, "errno", None), int):
            return Refused(code, repr(error))
    return Refused(-1, repr(error))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (KafkaError, IllegalStateError) as error:
        raise refused(error) from error


class _Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: AIOKafkaConsumer, watcher: Watcher) -> None:
        self._consumer = consumer
        self._watcher = watcher
        self._owned: list[TopicPartition] = []
        self._is_closed = False

    def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None:
        if not self._is_closed:
            self._owned = _plain(assigned)
            self._watcher.assigned(self._owned, self._generation())

    def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None:
        """Everything: it forgets some after a join that failed. Without a generation it was thrown out."""
        end = self._watcher.revoked if self._generation() >= 0 else self._watcher.lost
        end(self._owned)
        self._owned = []

    def close(self) -> None:
        """The client leaves without a word, and takes part in rebalances until it has left."""
        self._is_closed = True
        self.on_partitions_revoked(())

    def _generation(self) -> int:
        generation: int = self._consumer._coordinator.generation
        return generation


class AiokafkaMember(Member):
    def __init__(self, runner: Runner, watcher: Watcher, settings: dict[str, Any]) -> None:
        self._runner = runner
        self._watcher = watcher
        self._listener: _Listener | None = None
        with _refusals():
            self.consumer = runner.call(_started(settings))

    def subscribe(self, options: MemberOptions) -> None:
        async def subscribe() -> None:
            self._listener = _Listener(self.consumer, self._watcher)
            self.consumer.subscribe(topics=options.topics, pattern=options.pattern, listener=self._listener)

        self._runner.call(subscribe())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        async def assign() -> None:
            self.consumer.assign([Partition(*where) for where in partitions])

        self._runner.call(assign())

    def poll(self, timeout_s: float) -> list[Message]:
        async def poll() -> list[Message]:
            """Tell the watcher before the loop does anything else, such as a rebalance."""
            batches = await self.consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=500)
            messages = [message_of(record) for records in batches.values() for record in records]
            self._watcher.given(messages)
            return messages

        try:
            return self._runner.call(poll(), timeout_s + DEADLINE_S)
        except KafkaError as error:
            if JOINS_AGAIN in repr(error):
                return []
            raise refused(error) from error

    def assignment(self) -> set[TopicPartition]:
        return set(_plain(self.consumer.assignment()))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        with _refusals():
            self._runner.call(self.consumer.commit(_offsets(offsets)))

    def commit_later(self, offsets: Mapping[TopicPartition, int], on_done: Callable[[Exception | None], None]) -> None:
        async def commit() -> None:
            try:
                await self.consumer.commit(_offsets(offsets))
            except (KafkaError, IllegalStateError) as error:
                on_done(refused(error))
            else:
                on_done(None)

        self._runner.begin(commit())

    def committed(self, where: TopicPartition) -> int | None:
        with _refusals():
            return self._runner.call(self.consumer.committed(Partition(*where)))

    def seek(self, where: TopicPartition, offset: int) -> None:
        async def seek() -> None:
            self.consumer.seek(Partition(*where), offset)

        self._runner.call(seek())

    def identity(self) -> Any:
        return None

    def close(self) -> None:
        async def close() -> None:
            if self._listener is not None:
                self._listener.close()
            await self.consumer.stop()

        with suppress(CancelledError):  # it cancels itself when the broker goes away at this moment
            self._runner.call(close())


async def _started(settings: dict[str, Any]) -> AIOKafkaConsumer:
    """A consumer that waits for its broker, as other clients do by themselves."""
    while True:
        consumer = AIOKafkaConsumer(**settings)
        try:
            await consumer.start()
            return consumer
        except KafkaConnectionError:
            await consumer.stop()
            await asyncio.sleep(RECONNECT_S)


class AiokafkaTransactionalProducer(AiokafkaTestProducer, TransactionalProducer):
    def begin(self) -> None:
        with _refusals():
            self._runner.call(self._producer.begin_transaction())

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], identity: Any, group: str, timeout_s: float = DEADLINE_S
    ) -> None:
        with _refusals():
            self._runner.call(self._producer.send_offsets_to_transaction(_offsets(offsets), group), timeout_s)

    def commit(self, timeout_s: float = DEADLINE_S) -> None:
        with _refusals():
            self._runner.call(self._producer.commit_transaction(), timeout_s)

    def abort(self, timeout_s: float = DEADLINE_S) -> None:
        with _refusals():
            self._runner.call(self._producer.abort_transaction(), timeout_s)


class AiokafkaGroups(GroupClient):
    name = "aiokafka"
    assignors = (RANGE, ROUND_ROBIN, STICKY)
    fences_offsets = False
    fencing_code = None

    def __init__(self, plain: Client) -> None:
        assert isinstance(plain, AiokafkaClient)
        super().__init__(plain)
        self._runner = plain.runner

    def join(self, options: MemberOptions, watcher: Watcher) -> Member:
        settings = {
            **self._settings(options.group),
            "group_instance_id": options.instance_id,
            "session_timeout_ms": options.session_timeout_ms,
            "heartbeat_interval_ms": options.heartbeat_interval_ms,
            "max_poll_interval_ms": options.max_poll_interval_ms,
            "rebalance_timeout_ms": int(DEADLINE_S * 1000),
            "partition_assignment_strategy": (_ASSIGNORS[options.assignor or RANGE],),
            "auto_offset_reset": "none" if options.reset == "error" else options.reset,
            "isolation_level": "read_committed" if options.committed_only else "read_uncommitted",
        }
        member = AiokafkaMember(self._runner, watcher, settings)
        member.subscribe(options)
        return member

    @contextmanager
    def outsider(self, group: str, partitions: Iterable[TopicPartition]) -> Iterator[Member]:
        member = AiokafkaMember(self._runner, NobodyWatches(), self._settings(group))
        member.assign(partitions)
        try:
            yield member
        finally:
            member.close()

    @contextmanager
    def transactional_producer(
        self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> Iterator[TransactionalProducer]:
        async def begin() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.plain.bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                linger_ms=1,
            )
            await producer.start()
            return producer

        with _refusals():
            producer = self._runner.call(begin())
        try:
            yield AiokafkaTransactionalProducer(self._runner, producer)
        finally:
            self._runner.call(producer.stop())

    def _settings(self, group: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.plain.bootstrap,
            "group_id": group,
            "enable_auto_commit": False,
            "metadata_max_age_ms": 500,
            "fetch_max_wait_ms": 100,
        }
