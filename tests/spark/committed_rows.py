"""What a reader with read_committed finds in a topic: asked of librdkafka, which shares no code with what is tested."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

READ_S_MAX = 60


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


def committed_values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """The values of all of them."""
    return [message.value() for message in committed_messages(bootstrap, topic, isolation)]
