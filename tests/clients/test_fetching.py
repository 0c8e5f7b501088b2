"""Fetches that wait: following a topic while it is written, waking up, and limits on size."""

from __future__ import annotations

import threading

import pytest

from .client import Client, FetchOptions, Message
from .conftest import NewTopic

pytestmark = pytest.mark.clients

#: A fetch may wait this long (clients give up on an answer after 30 s): longer than the reads below, so that they pass
#: only if the broker wakes the fetch up.
FETCH_WAIT_MS = 25_000
READ_S = 15


def test_reading_while_writing(client: Client, all_clients: dict[str, Client], new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    count = 3000
    writer = all_clients["confluent-kafka"]

    def write() -> None:
        messages = (Message(b"%d" % number, partition=number % 2) for number in range(count))
        writer.produce(topic, messages, linger_ms=1)

    with client.reader(topic, partitions=(0, 1)) as reader:
        thread = threading.Thread(target=write)
        thread.start()
        got = reader.read(count)
        thread.join()
    for partition in (0, 1):
        values = [int(message.value or b"") for message in got if message.partition == partition]
        assert values == list(range(partition, count, 2))


def test_a_waiting_fetch_is_woken_by_a_message(
    client: Client, all_clients: dict[str, Client], new_topic: NewTopic
) -> None:
    topic = new_topic()
    writer = all_clients["confluent-kafka"]
    writer.produce(topic, [Message(b"0")])
    with client.reader(topic, fetch=FetchOptions(min_bytes=1, max_wait_ms=FETCH_WAIT_MS)) as reader:
        assert reader.read(1, READ_S)[0].value == b"0"
        for number in range(1, 6):
            writer.produce(topic, [Message(b"%d" % number)])
            assert reader.read(1, READ_S)[0].value == b"%d" % number


def test_a_fetch_waits_for_its_least_number_of_bytes(
    client: Client, all_clients: dict[str, Client], new_topic: NewTopic
) -> None:
    topic = new_topic()
    writer = all_clients["confluent-kafka"]
    with client.reader(topic, fetch=FetchOptions(min_bytes=200_000, max_wait_ms=FETCH_WAIT_MS)) as reader:
        for number in range(12):
            writer.produce(topic, [Message(bytes([number]) * 20_000)])
        got = reader.read(10, READ_S)
    assert [message.value for message in got] == [bytes([number]) * 20_000 for number in range(10)]


def test_a_fetch_ends_at_its_time_with_what_there_is(
    client: Client, all_clients: dict[str, Client], new_topic: NewTopic
) -> None:
    topic = new_topic()
    all_clients["confluent-kafka"].produce(topic, [Message(b"alone")])
    with client.reader(topic, fetch=FetchOptions(min_bytes=100_000, max_wait_ms=300)) as reader:
        assert reader.read(1)[0].value == b"alone"


def test_messages_larger_than_the_fetch_still_come(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    sent = [Message(bytes([97 + number]) * size) for number, size in enumerate([10, 5000, 10, 20_000, 3000, 10])]
    for message in sent:
        client.produce(topic, [message])
    with client.reader(topic, fetch=FetchOptions(max_partition_bytes=1000)) as reader:
        assert [message.value for message in reader.read(len(sent))] == [message.value for message in sent]


def test_a_small_fetch_leaves_no_partition_behind(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=5)
    for partition in range(5):
        client.produce(topic, [Message(b"v" * 500, partition=partition)] * 40, linger_ms=20)
    with client.reader(topic, range(5), fetch=FetchOptions(max_partition_bytes=2000)) as reader:
        got = reader.read(200)
    for partition in range(5):
        assert [message.offset for message in got if message.partition == partition] == list(range(40))


def test_two_readers_do_not_disturb_each_other(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    with library.reader(topic) as first, library.reader(topic) as second:
        library.produce(topic, [Message(b"%d" % number) for number in range(100)])
        assert len(first.read(100)) == len(second.read(100)) == 100
        library.produce(topic, [Message(b"more")])
        assert first.read(1)[0].offset == second.read(1)[0].offset == 100


def test_a_reader_that_waits_at_the_end_of_many_partitions(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=50)
    with library.reader(topic, range(50)) as reader:
        for partition in (0, 49, 7, 7, 23):
            library.produce(topic, [Message(b"%d" % partition, partition=partition)])
            got = reader.read(1, READ_S)[0]
            assert (got.value, got.partition) == (b"%d" % partition, partition)
