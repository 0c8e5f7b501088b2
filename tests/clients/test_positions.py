"""Where to read: offsets, times, the ends, and what happens beyond them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from .client import END, Admin, Client, FetchOptions, Message, Reader
from .conftest import NewTopic

pytestmark = pytest.mark.clients

FIRST_MS = 1_700_000_000_000
STEP_MS = 1000


def numbered(count: int, partition: int = 0) -> list[Message]:
    return [
        Message(b"%d" % number, partition=partition, timestamp_ms=FIRST_MS + number * STEP_MS)
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def hundred(all_clients: dict[str, Client], admin: Admin) -> str:
    """A topic with the messages 0 to 99, one second apart; nobody adds to it."""
    topic = f"hundred-{uuid4().hex[:12]}"
    write_hundred(all_clients, admin, topic)
    return topic


@pytest.fixture
def own_hundred(all_clients: dict[str, Client], admin: Admin) -> str:
    """The same for one test, which may add to it."""
    topic = f"own-hundred-{uuid4().hex[:12]}"
    write_hundred(all_clients, admin, topic)
    return topic


def write_hundred(all_clients: dict[str, Client], admin: Admin, topic: str) -> None:
    admin.create_topics({topic: 1})
    all_clients["confluent-kafka"].produce(topic, numbered(100), compression="gzip", linger_ms=20)


def test_the_first_and_last_offset(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    assert client.offsets(topic, 0) == client.offsets(topic, 1) == (0, 0)
    client.produce(topic, [Message(b"v", partition=1)] * 7)
    assert client.offsets(topic, 0) == (0, 0)
    assert client.offsets(topic, 1) == (0, 7)


@pytest.mark.parametrize("offset", [0, 42, 99])
def test_reading_from_an_offset(client: Client, hundred: str, offset: int) -> None:
    got = client.consume(hundred, 100 - offset, start=offset)
    assert [message.value for message in got] == [b"%d" % number for number in range(offset, 100)]


def test_seeking_back_and_forth(library: Client, hundred: str) -> None:
    with library.reader(hundred, fetch=FetchOptions(max_wait_ms=50)) as reader:
        assert reader.read(1)[0].offset == 0
        for offset in (90, 3, 57, 0, 99):
            reader.seek(0, offset)
            reader.drop_kept()
            assert reader.read(1)[0].value == b"%d" % offset


def test_the_offset_of_a_time(client: Client, hundred: str) -> None:
    expected = {
        0: 0,
        FIRST_MS: 0,
        FIRST_MS + 1: 1,
        FIRST_MS + 42 * STEP_MS: 42,
        FIRST_MS + 42 * STEP_MS + 1: 43,
        FIRST_MS + 99 * STEP_MS: 99,
        FIRST_MS + 99 * STEP_MS + 1: None,
    }
    assert {time_ms: client.offset_at(hundred, 0, time_ms) for time_ms in expected} == expected


def test_the_offset_of_a_time_by_the_brokers_clock(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(settings={"message.timestamp.type": "LogAppendTime"})
    for value in (b"a", b"b", b"c"):
        client.produce(topic, [Message(value)])
    for message in client.consume(topic, 3):
        assert message.timestamp_ms is not None
        found = client.offset_at(topic, 0, message.timestamp_ms)
        assert found is not None and found <= message.offset


def test_beyond_the_ends_the_reset_decides(client: Client, own_hundred: str) -> None:
    assert client.consume(own_hundred, 1, start=10_000, reset="earliest")[0].offset == 0
    with client.reader(own_hundred, start=10_000, reset="latest") as reader:
        offset = _produce_until_read(client, own_hundred, reader)
    assert offset >= 100


def test_reading_from_the_end_shows_only_what_is_new(client: Client, own_hundred: str) -> None:
    with client.reader(own_hundred, start=END) as reader:
        offset = _produce_until_read(client, own_hundred, reader)
    assert offset >= 100


def _produce_until_read(client: Client, topic: str, reader: Reader) -> int:
    """When a reader has found the end only it knows: write until it has read something. The offset of that."""
    for _ in range(100):
        client.produce(topic, [Message(b"new")])
        if messages := reader.poll(0.2):
            assert all(message.value == b"new" for message in messages)
            return messages[0].offset
    raise AssertionError("the reader has not found the end")


def test_several_partitions_each_from_its_place(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    library.produce(topic, [message for number in range(3) for message in numbered(10, number)])
    starts = {0: 9, 1: 5, 2: 0}
    got = library.consume(topic, 1 + 5 + 10, partitions=(0, 1, 2), start=starts)
    for partition, first in starts.items():
        offsets = [message.offset for message in got if message.partition == partition]
        assert offsets == list(range(first, 10))
