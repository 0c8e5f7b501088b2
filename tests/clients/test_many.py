"""Many topics, many connections, many producers."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from uuid import uuid4

import pytest

from .client import Admin, Client, Message
from .conftest import NewTopic

pytestmark = pytest.mark.clients

#: ApiVersions, version 0, with the number 7 and no client id.
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000007 ffff")


def create_and_use(count: int, library: Client, all_clients: dict[str, Client], admin: Admin) -> None:
    """Create topics in chunks with this client, and write and read a few of them with all."""
    prefix = f"many-{uuid4().hex[:8]}"
    names = [f"{prefix}-{number:04}" for number in range(count)]
    with library.admin() as own:
        left = iter(names)
        while chunk := list(islice(left, 100)):
            own.create_topics(dict.fromkeys(chunk, 1))
        assert set(names) <= own.list_topics()
    for client in all_clients.values():
        for name in names[:: count // 5]:
            client.produce(name, [Message(client.name.encode())])
            written = client.offsets(name, 0)[1]
            assert client.consume(name, 1, start=written - 1)[0].value == client.name.encode()
    for name in names[::50]:
        admin.delete_topic(name)
    assert admin.list_topics() & set(names) == set(names) - set(names[::50])


def test_a_thousand_topics(all_clients: dict[str, Client], admin: Admin) -> None:
    create_and_use(1000, all_clients["confluent-kafka"], all_clients, admin)


@pytest.mark.slow
def test_three_thousand_topics(library: Client, all_clients: dict[str, Client], admin: Admin) -> None:
    create_and_use(3000, library, all_clients, admin)


def test_a_topic_with_many_partitions(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=200)
    library.produce(topic, [Message(b"%d" % number, partition=number) for number in range(200)])
    got = library.consume(topic, 200, range(200))
    assert sorted((message.partition, message.value) for message in got) == [(one, b"%d" % one) for one in range(200)]


def test_two_hundred_connections(bootstrap: str, all_clients: dict[str, Client], new_topic: NewTopic) -> None:
    """All of them open at once and answered, while a client goes on as if alone."""
    host, _, port = bootstrap.rpartition(":")
    topic = new_topic()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(API_VERSIONS)
        size = int.from_bytes(await reader.readexactly(4), "big")
        return (await reader.readexactly(size))[:4]

    async def run() -> None:
        streams = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
        for _ in range(3):
            answers = await asyncio.gather(*(ask(*stream) for stream in streams))
            assert answers == [b"\0\0\0\7"] * 200
        client = all_clients["confluent-kafka"]
        await asyncio.to_thread(client.produce, topic, [Message(b"beside them")])
        assert (await asyncio.to_thread(client.consume, topic, 1))[0].value == b"beside them"
        for _, writer in streams:
            writer.close()
            await writer.wait_closed()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_connection_that_says_nothing_disturbs_nobody(
    bootstrap: str, all_clients: dict[str, Client], new_topic: NewTopic
) -> None:
    host, _, port = bootstrap.rpartition(":")
    topic = new_topic()
    with socket.create_connection((host, int(port))) as silent, socket.create_connection((host, int(port))) as half:
        half.sendall(API_VERSIONS[:9])
        for client in all_clients.values():
            client.produce(topic, [Message(b"v")])
        assert silent.fileno() > 0
    assert all_clients["confluent-kafka"].offsets(topic, 0) == (0, len(all_clients))


def test_twenty_producers_and_readers_at_once(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)

    def work(number: int) -> int:
        library.produce(topic, [Message(b"%d/%d" % (number, one), partition=number % 4) for one in range(50)])
        return len(library.consume(topic, 50, [number % 4]))

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(work, range(20))) == [50] * 20
    for partition in range(4):
        values = [message.value or b"" for message in library.consume(topic, 250, [partition])]
        for number in range(partition, 20, 4):
            own = [value for value in values if value.startswith(b"%d/" % number)]
            assert own == [b"%d/%d" % (number, one) for one in range(50)]
