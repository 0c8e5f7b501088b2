"""kafkajs: its admin client and its producer. What it wrote is read back with confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.node

READ_TIMEOUT_S = 20

Program = Callable[[str, str], dict[str, Any]]


def read(broker: BrokerProcess, topic: str, partition: int, count: int) -> list[Message]:
    """So many messages from the beginning of a partition; nothing may follow them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        where = TopicPartition(topic, partition, 0)
        assert consumer.get_watermark_offsets(where, timeout=READ_TIMEOUT_S) == (0, count)
        consumer.assign([where])
        messages: list[Message] = []
        deadline_s = time.monotonic() + READ_TIMEOUT_S
        while len(messages) < count and time.monotonic() < deadline_s:
            messages += consumer.consume(count - len(messages), timeout=1)
        assert [message.error() for message in messages] == [None] * count
        return messages
    finally:
        consumer.close()


def test_admin(program: Program, topic: str) -> None:
    answers = program("admin", topic)
    one_replica = {"leader": 0, "replicas": [0], "isr": [0]}

    def setting(name: str, value: str, *, is_own: bool) -> dict[str, Any]:
        source, synonyms = (1, 2) if is_own else (5, 1)
        return {
            "configName": name,
            "configValue": value,
            "configSource": source,
            "isDefault": not is_own,
            "synonyms": synonyms,
        }

    assert answers == {
        "cluster": {"brokers": [0], "controller": 0, "idLength": 22},
        "try": True,
        "create": True,
        "create again": False,
        "no partitions": {"error": "INVALID_PARTITIONS"},
        "three replicas": {"error": "INVALID_REPLICATION_FACTOR"},
        "impossible name": {"error": "INVALID_TOPIC_EXCEPTION"},
        "wrong setting": {"error": "INVALID_CONFIG"},
        "wrong assignment": {"error": "INVALID_REPLICA_ASSIGNMENT"},
        "list": [topic],
        "metadata": [{"name": topic, "partitions": [{"partitionId": number, **one_replica} for number in range(2)]}],
        "grow": None,
        "grow again": {"error": "INVALID_PARTITIONS"},
        "settings": [
            setting("flush.ms", "5000", is_own=True),
            setting("max.message.bytes", "1048588", is_own=False),
        ],
        "alter": [
            setting("flush.ms", str(2**63 - 1), is_own=False),
            setting("max.message.bytes", "2000", is_own=True),
        ],
        "alter wrongly": {"error": "INVALID_CONFIG"},
        "settings of an unknown topic": {"error": "UNKNOWN_TOPIC_OR_PARTITION"},
        "settings of a broker": ["1048588"],
        "offsets": [{"partition": 1, "offset": "3", "high": "3", "low": "0"}],
        "offsets by time": [{"partition": 1, "offset": "1"}],
        "offsets after all times": [{"partition": 1, "offset": "3"}],
        "delete records": [{"partition": 1, "offset": "3", "high": "3", "low": "2"}],
        "delete records beyond the end": {"error": "KafkaJSDeleteTopicRecordsError"},
        "delete": [],
        "delete again": {"error": "UNKNOWN_TOPIC_OR_PARTITION"},
    }


def test_produce(program: Program, broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(READ_TIMEOUT_S)
    answers = program("produce", topic)

    def at(offset: int) -> list[dict[str, Any]]:
        return [{"partition": 0, "errorCode": 0, "baseOffset": str(offset)}]

    by_key = {"a": 1, "b": 2, "c": 1, "d": 2, "e": 2, "f": 0}
    assert answers == {
        "plain": at(0),
        "acks 1": at(1),
        "acks 0": "sent",
        "nothing": at(3),
        "headers": at(4),
        "gzip": at(5),
        "idempotent": at(105),
        "idempotent gzip": at(106),
        "by key": by_key,
        "several topics": ["-second:0", ":0"],
        "in parallel": 200,
        "too large": {"error": "MESSAGE_TOO_LARGE"},
        "an unknown topic": {"error": "UNKNOWN_TOPIC_OR_PARTITION"},
        "an impossible topic": {"error": "INVALID_TOPIC_EXCEPTION"},
    }
    first = read(broker, topic, 0, 208)
    hundred = [f"gzip {number}".encode() for number in range(100)]
    singles = [b"plain", b"one", b"zero", None, b"headers"]
    assert [message.value() for message in first] == [*singles, *hundred, b"idempotent", *hundred, b"f", b"both"]
    assert first[3].key() is None and first[0].key() == b"k"
    assert first[4].headers() == [("trace", b"1"), ("trace", b"2"), ("bytes", b"\x00\xff")]
    assert first[4].timestamp()[1] == 1700000000000
    assert [message.value() for message in read(broker, topic, 1, 2)] == [b"a", b"c"]
    third = [message.value() for message in read(broker, topic, 2, 203)]
    assert third[:3] == [b"b", b"d", b"e"]
    assert sorted(int(value) for value in third[3:] if value) == list(range(200))
    assert [message.value() for message in read(broker, f"{topic}-second", 0, 1)] == [b"both"]
