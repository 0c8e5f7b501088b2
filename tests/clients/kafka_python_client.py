"""kafka-python: a client in plain Python."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by a deprecated call
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError

from .client import (
    BEGINNING,
    DEADLINE_S,
    DEFAULT_FETCH,
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

DEADLINE_MS = int(DEADLINE_S * 1000)
#: How it says, in words, that settings were not altered.
_REFUSAL = re.compile(r"\[Error (\d+)\]")


def refused(error: BaseException) -> Exception:
    code = getattr(error, "errno", None)
    return Refused(code, str(error)) if isinstance(code, int) else RuntimeError(repr(error))


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise refused(error) from error


class KafkaPythonProducer(Producer):
    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer

    def send(self, topic: str, message: Message, on_done: OnDone) -> None:
        future = self._producer.send(
            topic,
            value=message.value,
            key=message.key,
            headers=list(message.headers),
            partition=message.partition,
            timestamp_ms=message.timestamp_ms,
        )
        future.add_callback(lambda sent: on_done(sent.partition, -1 if sent.offset is None else sent.offset, None))
        future.add_errback(lambda error: on_done(-1, -1, refused(error)))

    def flush(self, timeout_s: float = DEADLINE_S) -> None:
        self._producer.flush(timeout_s)


class KafkaPythonReader(Reader):
    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        super().__init__()
        self._consumer = consumer
        self._topic = topic

    def poll(self, timeout_s: float) -> list[Message]:
        with refusals():
            batches = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=10_000)
        return [message_of(record) for records in batches.values() for record in records]

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition), offset)


def message_of(record: Any) -> Message:
    return Message(
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        partition=record.partition,
        offset=record.offset,
        topic=record.topic,
        timestamp_type=record.timestamp_type,
    )


class KafkaPythonAdmin(Admin):
    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str] | None = None) -> None:
        new = {name: {"num_partitions": count, "configs": dict(configs or {})} for name, count in topics.items()}
        with refusals():
            self._admin.create_topics(new, timeout_ms=DEADLINE_MS)

    def delete_topic(self, name: str) -> None:
        with refusals():
            self._admin.delete_topics([name], timeout_ms=DEADLINE_MS)

    def list_topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions_of(self, name: str) -> dict[int, tuple[int, list[int], list[int]]]:
        (topic,) = self._admin.describe_topics([name])
        if topic["error_code"]:
            raise Refused(topic["error_code"])
        return {
            one["partition_index"]: (one["leader_id"], one["replica_nodes"], one["isr_nodes"])
            for one in topic["partitions"]
        }

    def create_partitions(self, name: str, total: int) -> None:
        with refusals():
            self._admin.create_partitions({name: total}, timeout_ms=DEADLINE_MS)

    def topic_configs(self, name: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        with refusals():
            answer = self._admin.describe_configs([resource], config_filter="all")
        return {config: entry["value"] for config, entry in answer["topic"][name].items()}

    def alter_topic_config(self, name: str, config: str, value: str) -> None:
        with refusals():
            answer = self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {config: value})])
        if refusal := _REFUSAL.match(answer["topic"][name]):
            raise Refused(int(refusal[1]), answer["topic"][name])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        where = TopicPartition(topic, partition)
        with refusals():
            answer = self._admin.delete_records({where: before_offset}, timeout_ms=DEADLINE_MS)
        return int(answer[where]["low_watermark"])

    def describe_cluster(self) -> ClusterSeen:
        seen = self._admin.describe_cluster()
        brokers = {node["broker_id"]: (node["host"], node["port"]) for node in seen["brokers"]}
        return ClusterSeen(seen["cluster_id"], seen["controller_id"], brokers)


class KafkaPythonClient(Client):
    name = "kafka-python"
    writes_null_headers = False
    follows_new_topics = False

    def close(self) -> None:
        """Let sockets that kafka-python left open be collected here, not in a test that knows nothing of them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    @contextmanager
    def producer(
        self, *, acks: str = "all", compression: str = "none", idempotent: bool = False, **options: Any
    ) -> Iterator[Producer]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            max_request_size=MESSAGE_BYTES_MAX,
            linger_ms=options.get("linger_ms", 5),
            reconnect_backoff_max_ms=500,
            metrics_enabled=False,
        )
        try:
            yield KafkaPythonProducer(producer)
            producer.flush(DEADLINE_S)
        finally:
            producer.close(DEADLINE_S)

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
        settings: dict[str, Any] = {"isolation_level": "read_committed" if committed_only else "read_uncommitted"}
        if fetch.min_bytes is not None:
            settings["fetch_min_bytes"] = fetch.min_bytes
        if fetch.max_wait_ms is not None:
            settings["fetch_max_wait_ms"] = fetch.max_wait_ms
        if fetch.max_partition_bytes is not None:
            settings["max_partition_fetch_bytes"] = fetch.max_partition_bytes
        with self._consumer(auto_offset_reset=reset, **settings) as consumer:
            assigned = [TopicPartition(topic, number) for number in partitions]
            consumer.assign(assigned)
            if start == BEGINNING:
                consumer.seek_to_beginning(*assigned)
            elif start == END:
                consumer.seek_to_end(*assigned)
                for one in assigned:
                    consumer.position(one)
            else:
                for one in assigned:
                    consumer.seek(one, start if isinstance(start, int) else start[one.partition])
            yield KafkaPythonReader(consumer, topic)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        where = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            return consumer.beginning_offsets([where])[where], consumer.end_offsets([where])[where]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        where = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            found = consumer.offsets_for_times({where: timestamp_ms})[where]
        return None if found is None else found.offset

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            yield KafkaPythonAdmin(admin)
        finally:
            admin.close()

    @contextmanager
    def _consumer(self, **settings: Any) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            reconnect_backoff_max_ms=500,
            metrics_enabled=False,
            **settings,
        )
        try:
            yield consumer
        finally:
            consumer.close()
