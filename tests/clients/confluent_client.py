"""confluent-kafka: librdkafka in Python."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as LibProducer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from .client import (
    BEGINNING,
    DEADLINE_S,
    DEFAULT_FETCH,
    DEFAULT_REPLICAS,
    END,
    MESSAGE_BYTES_MAX,
    Admin,
    Client,
    ClusterSeen,
    FetchOptions,
    Message,
    OnDone,
    Producer,
    Reader,
    Refused,
    Start,
)

_WORDS = {BEGINNING: OFFSET_BEGINNING, END: OFFSET_END}
_TYPES = {1: 0, 2: 1}


def refused(error: KafkaError) -> Refused:
    return Refused(error.code(), error.str())


class ConfluentProducer(Producer):
    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = LibProducer(settings)

    def send(self, topic: str, message: Message, on_done: OnDone) -> None:
        def delivered(error: KafkaError | None, sent: Any) -> None:
            on_done(sent.partition(), -1 if sent.offset() is None else sent.offset(), refused(error) if error else None)

        options: dict[str, Any] = {}
        if message.partition is not None:
            options["partition"] = message.partition
        if message.timestamp_ms is not None:
            options["timestamp"] = message.timestamp_ms
        while True:
            try:
                self._producer.produce(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers) or None,
                    on_delivery=delivered,
                    **options,
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self, timeout_s: float = DEADLINE_S) -> None:
        left = self._producer.flush(timeout_s)
        assert left == 0, f"{left} messages have no answer after {timeout_s} s"


class ConfluentReader(Reader):
    def __init__(self, consumer: Consumer, topic: str) -> None:
        super().__init__()
        self._consumer = consumer
        self._topic = topic

    def poll(self, timeout_s: float) -> list[Message]:
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            first = self._consumer.poll(left_s)
            got = [] if first is None else [first, *self._consumer.consume(10_000, 0)]
            messages = []
            for message in got:
                error = message.error()
                if error is None:
                    messages.append(message_of(message))
                elif error.code() >= 0 or error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise refused(error)
            if messages:
                return messages
        return []

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition, offset))


def message_of(message: Any) -> Message:
    kind, timestamp_ms = message.timestamp()
    return Message(
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=timestamp_ms,
        partition=message.partition(),
        offset=message.offset(),
        topic=message.topic(),
        timestamp_type=_TYPES.get(kind),
    )


class ConfluentAdmin(Admin):
    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str] | None = None) -> None:
        new = [NewTopic(name, count, DEFAULT_REPLICAS, config=dict(configs or {})) for name, count in topics.items()]
        _await_all(self._admin.create_topics(new, request_timeout=DEADLINE_S))

    def delete_topic(self, name: str) -> None:
        _await_all(self._admin.delete_topics([name], request_timeout=DEADLINE_S))

    def list_topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=DEADLINE_S).topics)

    def partitions_of(self, name: str) -> dict[int, tuple[int, list[int], list[int]]]:
        topic = self._admin.list_topics(name, timeout=DEADLINE_S).topics[name]
        if topic.error is not None:
            raise refused(topic.error)
        return {number: (one.leader, list(one.replicas), list(one.isrs)) for number, one in topic.partitions.items()}

    def create_partitions(self, name: str, total: int) -> None:
        _await_all(self._admin.create_partitions([NewPartitions(name, total)], request_timeout=DEADLINE_S))

    def topic_configs(self, name: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        (entries,) = _await_all(self._admin.describe_configs([resource], request_timeout=DEADLINE_S))
        return {entry.name: entry.value for entry in entries.values()}

    def alter_topic_config(self, name: str, config: str, value: str) -> None:
        entry = ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        _await_all(self._admin.incremental_alter_configs([resource], request_timeout=DEADLINE_S))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        asked = [TopicPartition(topic, partition, before_offset)]
        (answer,) = _await_all(self._admin.delete_records(asked, request_timeout=DEADLINE_S))
        return int(answer.low_watermark)

    def describe_cluster(self) -> ClusterSeen:
        seen = self._admin.describe_cluster(request_timeout=DEADLINE_S).result(DEADLINE_S)
        brokers = {node.id: (node.host, node.port) for node in seen.nodes}
        return ClusterSeen(seen.cluster_id, seen.controller.id, brokers)


def _await_all(futures: Mapping[Any, Future[Any]]) -> list[Any]:
    try:
        return [future.result(DEADLINE_S) for future in futures.values()]
    except KafkaException as error:
        raise refused(error.args[0]) from error


class ConfluentClient(Client):
    name = "confluent-kafka"

    @contextmanager
    def producer(
        self, *, acks: str = "all", compression: str = "none", idempotent: bool = False, **options: Any
    ) -> Iterator[Producer]:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "acks": acks,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "partitioner": "murmur2_random",
            "reconnect.backoff.max.ms": 500,
            "linger.ms": options.get("linger_ms", 5),
            **options.get("librdkafka", {}),
        }
        producer = ConfluentProducer(settings)
        yield producer
        producer.flush()

    @contextmanager
    def reader(
        self,
        topic: str,
        partitions: Sequence[int] = (0,),
        start: Start = BEGINNING,
        *,
        reset: str = "earliest",
        committed_only: bool = False,
        fetch: FetchOptions = DEFAULT_FETCH,
    ) -> Iterator[Reader]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "reconnect.backoff.max.ms": 500,
        }
        if fetch.min_bytes is not None:
            settings["fetch.min.bytes"] = fetch.min_bytes
        if fetch.max_wait_ms is not None:
            settings["fetch.wait.max.ms"] = fetch.max_wait_ms
        if fetch.max_partition_bytes is not None:
            settings["max.partition.fetch.bytes"] = fetch.max_partition_bytes
        consumer = Consumer(settings)
        try:
            consumer.list_topics(
                topic, DEADLINE_S
            )  # without it librdkafka looks for the leader only after half a second
            consumer.assign([TopicPartition(topic, number, _offset(start, number)) for number in partitions])
            yield ConfluentReader(consumer, topic)
        finally:
            consumer.close()

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        with self._asking() as consumer:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)
        return low, high

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with self._asking() as consumer:
            asked = [TopicPartition(topic, partition, timestamp_ms)]
            (answer,) = consumer.offsets_for_times(asked, timeout=DEADLINE_S)
        return None if answer.offset == OFFSET_END else answer.offset

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        yield ConfluentAdmin(self.bootstrap)

    @contextmanager
    def _asking(self) -> Iterator[Consumer]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none"})
        try:
            yield consumer
        finally:
            consumer.close()


def _offset(start: Start, partition: int) -> int:
    if isinstance(start, str):
        return _WORDS[start]
    return start if isinstance(start, int) else start[partition]
