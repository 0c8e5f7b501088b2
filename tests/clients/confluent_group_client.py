"""confluent-kafka in groups, by the classic protocol and by the newer one, and with transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from penstock.base.identifiers import TopicPartition

from .client import DEADLINE_S, Client, Message, Refused
from .confluent_client import ConfluentClient, ConfluentProducer, message_of, refused
from .group_client import (
    COOPERATIVE,
    RANGE,
    ROUND_ROBIN,
    TRANSACTION_TIMEOUT_MS,
    UNIFORM,
    UNRELEASED_INSTANCE_ID,
    GroupClient,
    Member,
    MemberOptions,
    NobodyWatches,
    TransactionalProducer,
    Watcher,
)

POLL_MESSAGES_MAX = 500
#: Beyond all codes of brokers.
CODES = 150
#: What librdkafka says of itself while it goes on; a group that changes its protocol makes its members join again.
_PASSING = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._PARTITION_EOF,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
)


def _plain(partitions: list[Partition]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in partitions]


def _partitions(offsets: Mapping[TopicPartition, int]) -> list[Partition]:
    return [Partition(where.topic, where.partition, offset) for where, offset in offsets.items()]


def _refused(error: KafkaError) -> Refused:
    """Of a fatal error it says only in words what the broker had answered."""
    if error.code() == KafkaError._FATAL:
        named = (code for code in range(1, CODES) if KafkaError(code).str() in error.str())
        return Refused(next(named, -1), error.str())
    return refused(error)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _refused(error.args[0]) from error


class ConfluentMember(Member):
    def __init__(self, settings: dict[str, Any], watcher: Watcher) -> None:
        self._watcher = watcher
        self._waiting: list[Callable[[Exception | None], None]] = []
        self.consumer = Consumer({**settings, "on_commit": self._on_commit})

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(
            topics,
            on_assign=lambda _, partitions: self._watcher.assigned(_plain(partitions), None),
            on_revoke=lambda _, partitions: self._watcher.revoked(_plain(partitions)),
            on_lost=lambda _, partitions: self._watcher.lost(_plain(partitions)),
        )

    def poll(self, timeout_s: float) -> list[Message]:
        """One by one, because each call can change what it owns."""
        deadline_s = time.monotonic() + timeout_s
        messages: list[Message] = []
        while len(messages) < POLL_MESSAGES_MAX:
            with _refusals():
                one = self.consumer.poll(0.0 if messages else max(0.0, deadline_s - time.monotonic()))
            if one is None:
                break
            error = one.error()
            if error is None:
                messages.append(message_of(one))
                self._watcher.given(messages[-1:])
            elif error.code() not in _PASSING:
                raise _refused(error)
        return messages

    def assignment(self) -> set[TopicPartition]:
        with _refusals():
            return set(_plain(self.consumer.assignment()))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        with _refusals():
            answer = self.consumer.commit(offsets=_partitions(offsets), asynchronous=False)
        for error in (one.error for one in answer or ()):
            if error is not None:
                raise refused(error)

    def commit_later(self, offsets: Mapping[TopicPartition, int], on_done: Callable[[Exception | None], None]) -> None:
        self._waiting.append(on_done)
        with _refusals():
            self.consumer.commit(offsets=_partitions(offsets), asynchronous=True)

    def _on_commit(self, error: KafkaError | None, partitions: list[Partition]) -> None:
        """Called for every commit, in their order; those that were waited for are nobody's here."""
        if self._waiting:
            errors = [error, *(one.error for one in partitions)]
            first = next((refused(one) for one in errors if one is not None), None)
            self._waiting.pop(0)(first)

    def committed(self, where: TopicPartition) -> int | None:
        with _refusals():
            (answer,) = self.consumer.committed([Partition(*where)], DEADLINE_S)
        if answer.error is not None:
            raise refused(answer.error)
        return None if answer.offset < 0 else int(answer.offset)

    def seek(self, where: TopicPartition, offset: int) -> None:
        with _refusals():
            self.consumer.seek(Partition(*where, offset))

    def identity(self) -> Any:
        return self.consumer.consumer_group_metadata()

    def close(self) -> None:
        self.consumer.close()


class ConfluentTransactionalProducer(ConfluentProducer, TransactionalProducer):
    def begin(self) -> None:
        with _refusals():
            self._producer.begin_transaction()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], identity: Any, group: str, timeout_s: float = DEADLINE_S
    ) -> None:
        with _refusals():
            self._producer.send_offsets_to_transaction(_partitions(offsets), identity, timeout_s)

    def commit(self, timeout_s: float = DEADLINE_S) -> None:
        with _refusals():
            self._producer.commit_transaction(timeout_s)

    def abort(self, timeout_s: float = DEADLINE_S) -> None:
        with _refusals():
            self._producer.abort_transaction(timeout_s)

    def initialise(self) -> None:
        with _refusals():
            self._producer.init_transactions(DEADLINE_S)


class ConfluentClassicGroups(GroupClient):
    name = "confluent-kafka"
    assignors = (RANGE, ROUND_ROBIN, COOPERATIVE)
    #: An answer to ListOffsets that comes after a rebalance makes librdkafka (2.16) ask again half a second later, and
    #: begin there, whatever has become of the partition: also where it reads already, or has nothing to read any more.
    stumbles_over_first_offsets = True

    def __init__(self, plain: Client) -> None:
        assert isinstance(plain, ConfluentClient)
        super().__init__(plain)

    def join(self, options: MemberOptions, watcher: Watcher) -> Member:
        settings = {
            **self._settings(options.group),
            **self._protocol(options),
            "auto.offset.reset": options.reset,
            "max.poll.interval.ms": options.max_poll_interval_ms,
            "isolation.level": "read_committed" if options.committed_only else "read_uncommitted",
        }
        if options.instance_id is not None:
            settings["group.instance.id"] = options.instance_id
        member = ConfluentMember(settings, watcher)
        member.subscribe([options.pattern] if options.pattern is not None else list(options.topics))
        return member

    @contextmanager
    def outsider(self, group: str, partitions: Iterable[TopicPartition]) -> Iterator[Member]:
        member = ConfluentMember(self._settings(group), NobodyWatches())
        member.consumer.assign([Partition(*where) for where in partitions])
        try:
            yield member
        finally:
            member.close()

    @contextmanager
    def transactional_producer(
        self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> Iterator[TransactionalProducer]:
        producer = ConfluentTransactionalProducer(
            {
                "bootstrap.servers": self.plain.bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                # librdkafka gives up on a message when its transaction would have timed out; the broker should.
                "message.timeout.ms": timeout_ms,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 1,
            }
        )
        producer.initialise()
        yield producer

    def _settings(self, group: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.plain.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 500,
            "fetch.wait.max.ms": 100,
        }

    def _protocol(self, options: MemberOptions) -> dict[str, Any]:
        return {
            "partition.assignment.strategy": options.assignor or RANGE,
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": options.heartbeat_interval_ms,
        }


class ConfluentConsumerGroups(ConfluentClassicGroups):
    """The broker assigns, and decides about session and heartbeats."""

    name = "confluent-kafka-consumer-protocol"
    assignors = (UNIFORM, RANGE)
    fencing_code = UNRELEASED_INSTANCE_ID

    def _protocol(self, options: MemberOptions) -> dict[str, Any]:
        settings = {"group.protocol": "consumer"}
        return settings | ({"group.remote.assignor": options.assignor} if options.assignor else {})
