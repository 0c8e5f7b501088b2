"""Topics with known content, written with confluent-kafka, for tests of reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .producing_sites import DEADLINE_S, wait_until


def fill(
    bootstrap: str, topic: str, values: Iterable[bytes | None], *, partition: int = 0, **settings: str | int
) -> None:
    """Write values to a partition and wait until they are there; underscores in names of settings stand for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, **named})
    for value in values:
        producer.produce(topic, value, partition=partition)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


@contextmanager
def transaction(bootstrap: str) -> Iterator[Producer]:
    """An open transaction; whoever does not end it leaves it open until here, and then it is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{uuid4().hex[:8]}", "linger.ms": 0})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    yield producer


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    """Delete what lies before an offset of partition 0."""
    where = TopicPartition(topic, 0, before)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([where])[where].result(DEADLINE_S)


def make_anew(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Make a topic again that is just being deleted."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def is_made() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, -1)])[topic].result(DEADLINE_S)
        except KafkaException:
            return False
        return True

    wait_until(is_made, f"topic {topic} made anew")
    wait_until(lambda: topic in admin.list_topics(timeout=DEADLINE_S).topics, f"topic {topic}")
