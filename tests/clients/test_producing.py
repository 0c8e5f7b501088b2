"""Ways to produce: acknowledgements, idempotence, keys to partitions, topics that do not exist yet."""

from __future__ import annotations

import time
from collections import defaultdict
from uuid import uuid4

import pytest

from .client import DEADLINE_S, Admin, Client, Message
from .conftest import NewTopic

pytestmark = pytest.mark.clients

PARTITIONS = 10


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgements(client: Client, new_topic: NewTopic, acks: str) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(100)]
    answers = client.produce(topic, [Message(value) for value in values], acks=acks)
    if client.knows_offsets and acks != "0":
        assert answers == [(0, number) for number in range(100)]
    assert [message.value for message in client.consume(topic, 100)] == values


def test_an_idempotent_producer(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    sent = [Message(b"%d" % number, key=b"%d" % (number % 20)) for number in range(1000)]
    client.produce(topic, sent, idempotent=True, linger_ms=1)
    got = client.consume(topic, 1000, partitions=(0, 1, 2))
    assert sorted(int(message.value or b"") for message in got) == list(range(1000))


def test_idempotent_producers_one_after_the_other(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    for number in range(3):
        library.produce(topic, [Message(b"%d" % number)], idempotent=True)
    assert [message.value for message in library.consume(topic, 3)] == [b"%d" % number for number in range(3)]


def test_every_client_sends_a_key_to_the_same_partition(all_clients: dict[str, Client], new_topic: NewTopic) -> None:
    keys = [b"key-%d" % number for number in range(200)] + ["größe".encode(), b"\x00\xff"[1:], b"x" * 1000]
    chosen: dict[str, dict[bytes, int]] = {}
    for name, client in all_clients.items():
        topic = new_topic(PARTITIONS)
        client.produce(topic, [Message(b"v", key=key) for key in keys])
        got = client.consume(topic, len(keys), partitions=range(PARTITIONS))
        chosen[name] = {message.key or b"": message.partition or 0 for message in got}
    assert len({tuple(sorted(places.items())) for places in chosen.values()}) == 1
    assert len(set(chosen["kafka-python"].values())) == PARTITIONS


def test_the_order_of_each_partition_is_kept(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(PARTITIONS)
    sent: dict[bytes, list[bytes]] = defaultdict(list)
    messages = []
    for number in range(5000):
        key, value = b"key-%d" % (number % 37), b"%d" % number
        sent[key].append(value)
        messages.append(Message(value, key=key))
    client.produce(topic, messages, compression="snappy")
    read: dict[bytes, list[bytes]] = defaultdict(list)
    places: dict[bytes, set[int | None]] = defaultdict(set)
    for message in client.consume(topic, len(messages), partitions=range(PARTITIONS)):
        read[message.key or b""].append(message.value or b"")
        places[message.key or b""].add(message.partition)
    assert read == sent
    assert all(len(place) == 1 for place in places.values())


def test_a_topic_is_created_on_demand(client: Client, admin: Admin) -> None:
    topic = f"made-on-demand-{uuid4().hex[:12]}"
    client.produce(topic, [Message(b"first"), Message(b"second")])
    assert topic in admin.list_topics()
    assert [message.value for message in client.consume(topic, 2)] == [b"first", b"second"]


def test_acks_0_in_quantity(library: Client, new_topic: NewTopic) -> None:
    """Nothing is answered, so only reading tells; the broker takes all that arrives."""
    topic = new_topic()
    with library.producer(acks="0") as producer:
        for number in range(2000):
            producer.send(topic, Message(b"%d" % number), lambda *_: None)
        producer.flush()
        assert [message.offset for message in library.consume(topic, 2000)] == list(range(2000))


def test_answers_come_without_more_traffic(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    answered: list[float] = []
    with library.producer(linger_ms=0) as producer:
        for number in range(50):
            producer.send(topic, Message(b"%d" % number), lambda *_: answered.append(time.monotonic()))
            producer.flush(DEADLINE_S)
            assert len(answered) == number + 1
