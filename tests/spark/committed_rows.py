"""What a reader with read_committed finds in a topic: asked of librdkafka, which shares no code with what is tested."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

READ_S_MAX = 60
POLL_S = 0.02


def committed_messages(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All messages up to the end that the brokers name to this kind of reader, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        return _read(consumer, topic)
    finally:
        consumer.close()


def committed_values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """The values of all of them, sorted."""
    return sorted(message.value().decode() for message in committed_messages(bootstrap, topic, isolation))


def settled_values(bootstrap: str, topic: str) -> list[str]:
    """The same, as soon as no transaction is open in the topic: then nothing can appear any more."""
    wait_until_settled(bootstrap, topic)
    return committed_values(bootstrap, topic)


def wait_until_settled(bootstrap: str, topic: str, timeout_s: float = READ_S_MAX) -> None:
    """Wait until every transaction in the topic is ended."""
    admin, until_s = AdminClient({"bootstrap.servers": bootstrap}), time.monotonic() + timeout_s
    while _ends(admin, topic, IsolationLevel.READ_COMMITTED) != _ends(admin, topic, IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < until_s, f"a transaction stays open in {topic}"
        time.sleep(POLL_S)


def is_settled(bootstrap: str, topic: str) -> bool:
    """Whether no transaction is open in the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return _ends(admin, topic, IsolationLevel.READ_COMMITTED) == _ends(admin, topic, IsolationLevel.READ_UNCOMMITTED)


def _ends(admin: AdminClient, topic: str, isolation: IsolationLevel) -> dict[int, int]:
    partitions = admin.list_topics(topic, timeout=READ_S_MAX).topics[topic].partitions
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=READ_S_MAX)
    return {where.partition: answer.result(READ_S_MAX).offset for where, answer in answers.items()}


def _read(consumer: Consumer, topic: str) -> list[Any]:
    partitions = consumer.list_topics(topic, timeout=READ_S_MAX).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    left, found, until_s = set(partitions), [], time.monotonic() + READ_S_MAX
    while left:
        assert time.monotonic() < until_s, f"partitions {left} of {topic} do not end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found.append(message)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            left.discard(message.partition())
    return sorted(found, key=lambda each: (each.partition(), each.offset()))
