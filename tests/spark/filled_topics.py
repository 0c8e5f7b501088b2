"""Messages for the source to find: written with confluent-kafka, so that another hand than ours has made them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

WAIT_S_MAX = 30.0


class Message(NamedTuple):
    """One record to write."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = 0
    """0: now"""
    headers: list[tuple[str, bytes | None]] | None = None


def fill(bootstrap: str, topic: str, messages: Iterable[Message | bytes], **settings: Any) -> None:
    """Write them in order, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, **settings})
    _write(producer, topic, messages)
    assert producer.flush(WAIT_S_MAX) == 0


def fill_transaction(
    bootstrap: str, topic: str, messages: Iterable[Message | bytes], name: str, *, ending: str
) -> Producer:
    """The same in a transaction that is committed, aborted or left open; the producer keeps it so."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(WAIT_S_MAX)
    producer.begin_transaction()
    _write(producer, topic, messages)
    assert producer.flush(WAIT_S_MAX) == 0
    if ending == "commit":
        producer.commit_transaction(WAIT_S_MAX)
    elif ending == "abort":
        producer.abort_transaction(WAIT_S_MAX)
    else:
        assert ending == "open"
    return producer


def _write(producer: Producer, topic: str, messages: Iterable[Message | bytes]) -> None:
    failures: list[Any] = []
    for each in messages:
        message = each if isinstance(each, Message) else Message(each)
        producer.produce(
            topic,
            message.value,
            message.key,
            message.partition,
            timestamp=message.timestamp_ms,
            headers=message.headers,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
        producer.poll(0)
    producer.flush(WAIT_S_MAX)
    assert not failures, failures[0]


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def make_topic(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)  # without a name for it, it would be gone before it has answered
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S_MAX)


def delete_topic(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)
    client.delete_topics([topic])[topic].result(WAIT_S_MAX)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    client = admin(bootstrap)
    client.create_partitions([NewPartitions(topic, total)])[topic].result(WAIT_S_MAX)


def delete_records(bootstrap: str, topic: str, *, before: int, partition: int = 0) -> None:
    place = TopicPartition(topic, partition, before)
    client = admin(bootstrap)
    client.delete_records([place])[place].result(WAIT_S_MAX)
