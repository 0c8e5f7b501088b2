"""aiokafka: an asyncio client, run on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

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

T = TypeVar("T")
DEADLINE_MS = int(DEADLINE_S * 1000)


def refused(error: BaseException) -> Exception:
    code = getattr(error, "errno", None)
    return Refused(code, str(error)) if isinstance(code, int) else RuntimeError(repr(error))


class Runner:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float = DEADLINE_S) -> T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), self.loop).result(timeout_s + 5)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something run that nobody waits for."""
        asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()


class AiokafkaTestProducer(Producer):
    def __init__(self, runner: Runner, producer: AIOKafkaProducer) -> None:
        self._runner = runner
        self._producer = producer

    def send(self, topic: str, message: Message, on_done: OnDone) -> None:
        def done(future: asyncio.Future[Any]) -> None:
            error = future.exception()
            if error is not None:
                on_done(-1, -1, refused(error))
                return
            sent = future.result()  # None with acks=0
            on_done(sent.partition if sent else -1, sent.offset if sent else -1, None)

        async def send() -> None:
            future = await self._producer.send(
                topic,
                value=message.value,
                key=message.key,
                partition=message.partition,
                timestamp_ms=message.timestamp_ms,
                headers=list(message.headers),
            )
            future.add_done_callback(done)

        try:
            self._runner.call(send())
        except KafkaError as error:
            on_done(-1, -1, refused(error))

    def flush(self, timeout_s: float = DEADLINE_S) -> None:
        self._runner.call(self._producer.flush(), timeout_s)


class AiokafkaReader(Reader):
    def __init__(self, runner: Runner, consumer: AIOKafkaConsumer, topic: str) -> None:
        super().__init__()
        self._runner = runner
        self._consumer = consumer
        self._topic = topic

    def poll(self, timeout_s: float) -> list[Message]:
        try:
            batches = self._runner.call(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)), timeout_s + 5)
        except KafkaError as error:
            raise refused(error) from error
        return [message_of(record) for records in batches.values() for record in records]

    def seek(self, partition: int, offset: int) -> None:
        self._runner.loop.call_soon_threadsafe(self._consumer.seek, TopicPartition(self._topic, partition), offset)


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


class AiokafkaAdmin(Admin):
    def __init__(self, runner: Runner, admin: AIOKafkaAdminClient) -> None:
        self._call = runner.call
        self._admin = admin

    def create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str] | None = None) -> None:
        new = [NewTopic(name, count, 1, topic_configs=dict(configs or {})) for name, count in topics.items()]
        answer = self._call(self._admin.create_topics(new, timeout_ms=DEADLINE_MS))
        _raise_first(row[1] for row in answer.topic_errors)

    def delete_topic(self, name: str) -> None:
        answer = self._call(self._admin.delete_topics([name], timeout_ms=DEADLINE_MS))
        _raise_first(row[1] for row in answer.topic_error_codes)

    def list_topics(self) -> set[str]:
        return set(self._call(self._admin.list_topics()))

    def partitions_of(self, name: str) -> dict[int, tuple[int, list[int], list[int]]]:
        (topic,) = self._call(self._admin.describe_topics([name]))
        _raise_first([topic["error_code"]])
        return {one["partition"]: (one["leader"], one["replicas"], one["isr"]) for one in topic["partitions"]}

    def create_partitions(self, name: str, total: int) -> None:
        try:
            self._call(self._admin.create_partitions({name: NewPartitions(total)}, timeout_ms=DEADLINE_MS))
        except KafkaError as error:
            raise refused(error) from error

    def topic_configs(self, name: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        (answer,) = self._call(self._admin.describe_configs([resource]))
        ((code, _, _, _, entries),) = answer.resources
        _raise_first([code])
        return {entry[0]: entry[1] for entry in entries}

    def alter_topic_config(self, name: str, config: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, {config: value})
        (answer,) = self._call(self._admin.alter_configs([resource]))
        _raise_first(row[0] for row in answer.resources)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        where = TopicPartition(topic, partition)
        try:
            answer = self._call(self._admin.delete_records({where: RecordsToDelete(before_offset)}, DEADLINE_MS))
        except KafkaError as error:
            raise refused(error) from error
        return int(answer[where])

    def describe_cluster(self) -> ClusterSeen:
        seen = self._call(self._admin.describe_cluster())
        brokers = {node["node_id"]: (node["host"], node["port"]) for node in seen["brokers"]}
        return ClusterSeen(seen["cluster_id"], seen["controller_id"], brokers)


def _raise_first(codes: Any) -> None:
    for code in codes:
        if code:
            raise Refused(code)


class AiokafkaClient(Client):
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.runner = Runner()

    def close(self) -> None:
        self.runner.close()

    @contextmanager
    def producer(
        self, *, acks: str = "all", compression: str = "none", idempotent: bool = False, **options: Any
    ) -> Iterator[Producer]:
        async def begin() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks=acks if acks == "all" else int(acks),
                compression_type=None if compression == "none" else compression,
                enable_idempotence=idempotent,
                max_request_size=MESSAGE_BYTES_MAX,
                linger_ms=options.get("linger_ms", 5),
            )
            await producer.start()
            return producer

        producer = self.runner.call(begin())
        try:
            yield AiokafkaTestProducer(self.runner, producer)
        finally:
            self.runner.call(producer.stop())

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
            self.runner.call(_assign(consumer, [TopicPartition(topic, number) for number in partitions], start))
            yield AiokafkaReader(self.runner, consumer, topic)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        where = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            first = self.runner.call(consumer.beginning_offsets([where]))[where]
            return first, self.runner.call(consumer.end_offsets([where]))[where]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        where = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            found = self.runner.call(consumer.offsets_for_times({where: timestamp_ms}))[where]
        return None if found is None else found.offset

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        async def begin() -> AIOKafkaAdminClient:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            return admin

        admin = self.runner.call(begin())
        try:
            yield AiokafkaAdmin(self.runner, admin)
        finally:
            self.runner.call(admin.close())

    @contextmanager
    def _consumer(self, **settings: Any) -> Iterator[AIOKafkaConsumer]:
        async def begin() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False, **settings)
            await consumer.start()
            return consumer

        consumer = self.runner.call(begin())
        try:
            yield consumer
        finally:
            with suppress(CancelledError):  # it cancels itself when the broker goes away at this moment
                self.runner.call(consumer.stop())


async def _assign(consumer: AIOKafkaConsumer, partitions: list[TopicPartition], start: Start) -> None:
    consumer.assign(partitions)
    if start == BEGINNING:
        await consumer.seek_to_beginning(*partitions)
    elif start == END:
        await consumer.seek_to_end(*partitions)
    else:
        for one in partitions:
            consumer.seek(one, start if isinstance(start, int) else start[one.partition])
