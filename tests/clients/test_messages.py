"""What goes in comes out: every kind of message, written by one client and read by all."""

from __future__ import annotations

import random
import time

import pytest

from .client import Client, Message, Refused
from .conftest import NewTopic

pytestmark = pytest.mark.clients

MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
#: A topic's default `max.message.bytes`.
BATCH_BYTES_MAX = 1_048_588
#: What a batch with one record adds to a value of about 1 MB: the header of the batch (61 bytes), two lengths of three
#: bytes, and one byte each for attributes, timestamp, offset, key and header count.
BATCH_OVERHEAD_BYTES = 61 + 2 * 3 + 5

ASSORTED = [
    Message(b"plain"),
    Message(b"with a key", key=b"key"),
    Message(b"", key=b"an empty value"),
    Message(None, key=b"no value"),
    Message("Grüße, 世界, \U0001f30a".encode(), key="schlüssel-鍵".encode()),
    Message(b"with headers", key=b"h", headers=(("trace", b"abc"), ("trace", b"twice"), ("größe", "häder".encode()))),
    Message(bytes(range(29)) + bytes(range(32, 256)), key=bytes(range(1, 29))),
]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_client_reads_what_this_one_wrote(
    client: Client, all_clients: dict[str, Client], new_topic: NewTopic, compression: str
) -> None:
    if compression not in client.compressions:
        pytest.skip(f"{client.name} has no {compression}")
    topic = new_topic()
    sent = [*ASSORTED, *(Message(b"again and again " * (number % 7 + 1)) for number in range(50))]
    client.produce(topic, sent, compression=compression, linger_ms=20)
    for reading in all_clients.values():
        got = reading.consume(topic, len(sent))
        assert [message.content for message in got] == [message.content for message in sent], reading.name
        assert [message.offset for message in got] == list(range(len(sent))), reading.name


def test_null_headers(library: Client, all_clients: dict[str, Client], new_topic: NewTopic) -> None:
    if not library.writes_null_headers:
        pytest.skip(f"{library.name} refuses to write them")
    topic = new_topic()
    headers = (("empty", b""), ("null", None))
    library.produce(topic, [Message(b"v", headers=headers)])
    for reading in all_clients.values():
        if reading.reads_null_headers:
            assert reading.consume(topic, 1)[0].headers == headers, reading.name


def test_an_empty_key_is_no_null_key(library: Client, all_clients: dict[str, Client], new_topic: NewTopic) -> None:
    topic = new_topic()
    library.produce(topic, [Message(b"a", key=b""), Message(b"b")])
    for reading in all_clients.values():
        assert [message.key for message in reading.consume(topic, 2)] == [b"", None], reading.name


def test_the_producers_timestamps_are_kept(
    library: Client, all_clients: dict[str, Client], new_topic: NewTopic
) -> None:
    topic = new_topic()
    times_ms = [1_600_000_000_000, 1_500_000_000_000, 1_700_000_000_123]
    library.produce(topic, [Message(b"v", timestamp_ms=time_ms) for time_ms in times_ms])
    for reading in all_clients.values():
        got = reading.consume(topic, len(times_ms))
        assert [message.timestamp_ms for message in got] == times_ms, reading.name
        assert {message.timestamp_type for message in got} <= {0, None}, reading.name


def test_the_brokers_timestamps_replace_the_producers(
    client: Client, all_clients: dict[str, Client], new_topic: NewTopic
) -> None:
    topic = new_topic(settings={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    stale_ms = 1_500_000_000_000 if client.sets_timestamps else None
    client.produce(topic, [Message(b"v%d" % number, timestamp_ms=stale_ms) for number in range(5)])
    after_ms = int(time.time() * 1000)
    for reading in all_clients.values():
        got = reading.consume(topic, 5)
        assert [message.value for message in got] == [b"v%d" % number for number in range(5)]
        assert all(before_ms <= (message.timestamp_ms or 0) <= after_ms for message in got), reading.name
        assert {message.timestamp_type for message in got} <= {1, None}, reading.name


def test_a_timestamp_from_the_far_future_is_refused(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic(settings={"message.timestamp.after.max.ms": "3600000"})
    tomorrow_ms = int(time.time() * 1000) + 86_400_000
    with pytest.raises(Refused) as refusal:
        library.produce(topic, [Message(b"v", timestamp_ms=tomorrow_ms)])
    assert refusal.value.code == INVALID_TIMESTAMP


@pytest.mark.parametrize("compression", ["none", pytest.param("zstd", marks=pytest.mark.slow)])
def test_messages_of_a_megabyte(
    client: Client, all_clients: dict[str, Client], new_topic: NewTopic, compression: str
) -> None:
    topic = new_topic()
    source = random.Random(7)
    sent = [Message(source.randbytes(1_000_000).replace(b"\x1d", b"-"), key=b"k%d" % number) for number in range(4)]
    client.produce(topic, sent, compression=compression)
    for reading in all_clients.values():
        got = reading.consume(topic, len(sent))
        assert [message.content for message in got] == [message.content for message in sent], reading.name


def test_the_largest_message_and_one_byte_more(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    largest = b"x" * (BATCH_BYTES_MAX - BATCH_OVERHEAD_BYTES)
    client.produce(topic, [Message(largest)])
    with pytest.raises(Refused) as refusal:
        client.produce(topic, [Message(largest + b"x")])
    assert refusal.value.code == MESSAGE_TOO_LARGE
    assert client.offsets(topic, 0) == (0, 1)
    assert client.consume(topic, 1)[0].value == largest


def test_a_topic_may_allow_more(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(settings={"max.message.bytes": "8000000"})
    value = b"large" * 1_000_000
    client.produce(topic, [Message(value)])
    assert client.consume(topic, 1)[0].value == value


def test_ten_thousand_small_messages_in_order(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(10_000)]
    client.produce(topic, [Message(value) for value in values], compression="lz4", linger_ms=20)
    got = client.consume(topic, len(values))
    assert [message.value for message in got] == values
    assert [message.offset for message in got] == list(range(len(values)))
