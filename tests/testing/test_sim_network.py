"""The simulated network's faults: delay, cuts, resets, refusals, machines that end in different ways."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from penstock.base.world import Stream
from penstock.testing.sim_disk import Crashed
from penstock.testing.sim_loop import SimLoop
from penstock.testing.sim_network import HostNetwork, SimNetwork

PORT = 9092


class Setting:
    """A client machine, a server machine, and a connection between them."""

    def __init__(self) -> None:
        self.loop = SimLoop(limit_s=10_000)
        self.network = SimNetwork(self.loop, seed=1)
        self.links = self.network.links
        self.client_process = self.network.attach("client")
        self.server_process = self.network.attach("server")
        self.accepted: asyncio.Queue[Stream] = asyncio.Queue()

    def run(self, main: Callable[[Setting], Coroutine[Any, Any, None]]) -> None:
        self.loop.run_until_complete(main(self))

    async def listen(self) -> None:
        await self.server_process.listen("", PORT, self.accepted.put_nowait)

    async def connect(self) -> tuple[Stream, Stream]:
        if PORT not in self.network.host("server").listeners:
            await self.listen()
        client = await self.client_process.connect("server", PORT)
        return client, await self.accepted.get()


@pytest.fixture
def setting() -> Iterator[Setting]:
    made = Setting()
    with made.loop:
        yield made


async def readable(stream: Stream) -> None:
    happened = asyncio.Event()
    stream.watch_read(happened.set)
    await happened.wait()
    stream.watch_read(None)


async def receive(stream: Stream, count: int) -> bytes:
    received = b""
    while len(received) < count:
        await readable(stream)
        buffer = bytearray(count - len(received))
        size = stream.recv_into(buffer)
        if size == 0:
            break
        received += buffer[:size]
    return received


async def error_of(awaitable: Coroutine[Any, Any, object]) -> int | None:
    try:
        await awaitable
    except OSError as error:
        return error.errno
    return None


def test_delays_are_the_links_own(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        client, server = await at.connect()
        at.links.set_delay("client", "server", 1.0, 1.0)
        at.links.set_delay("server", "client", 5.0, 5.0)
        began = at.loop.time()
        client.send(b"x")
        await receive(server, 1)
        assert at.loop.time() == began + 1
        server.send(b"y")
        await receive(client, 1)
        assert at.loop.time() == began + 6

    setting.run(main)


def test_a_cut_holds_bytes_back_in_one_direction(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        client, server = await at.connect()
        at.links.cut("client", "server")
        client.send(b"held")
        server.send(b"through")
        assert await receive(client, 7) == b"through"
        await asyncio.sleep(60)
        with pytest.raises(BlockingIOError):
            server.recv_into(bytearray(9))
        at.links.heal("client", "server")
        assert await receive(server, 4) == b"held"

    setting.run(main)


def test_a_cut_that_lasts_ends_the_connection(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        client, server = await at.connect()
        at.links.cut_both("client", "server")
        client.send(b"lost")
        began = at.loop.time()
        assert await error_of(receive(client, 1)) == errno.ETIMEDOUT
        assert at.loop.time() == pytest.approx(began + at.links.give_up_s, abs=1)
        with pytest.raises(BlockingIOError):
            server.recv_into(bytearray(9))

    setting.run(main)


def test_who_only_reads_does_not_give_up(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        client, server = await at.connect()
        at.links.cut("server", "client")
        client.send(b"x")
        assert await receive(server, 1) == b"x"
        await asyncio.sleep(2 * at.links.give_up_s)
        at.links.heal_all()
        server.send(b"y")
        assert await receive(client, 1) == b"y"

    setting.run(main)


def test_buffers_are_bounded_even_when_nobody_answers(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        client, _ = await at.connect()
        at.links.cut("client", "server")
        with pytest.raises(BlockingIOError):
            for _ in range(1_000_000):
                client.send(bytes(1000))

    setting.run(main)


def test_a_reset_is_seen_at_both_ends(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        client, server = await at.connect()
        client.send(b"lost")
        at.network.reset("client", "server")
        for stream in (client, server):
            assert await error_of(receive(stream, 1)) == errno.ECONNRESET
            with pytest.raises(BrokenPipeError):
                stream.send(b"x")
            assert await receive(stream, 1) == b""

    setting.run(main)


def test_connecting_can_be_refused_unanswered_or_impossible(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        connect = at.client_process.connect
        assert await error_of(connect("server", PORT)) == errno.ECONNREFUSED
        await at.listen()
        at.network.refuse("server", PORT)
        assert await error_of(connect("server", PORT)) == errno.ECONNREFUSED
        at.network.black_hole("server", PORT)
        began = at.loop.time()
        assert await error_of(connect("server", PORT)) == errno.ETIMEDOUT
        assert at.loop.time() == began + at.links.connect_timeout_s
        at.network.clear_faults()
        await at.connect()
        with pytest.raises(socket.gaierror):
            await connect("nowhere", PORT)

    setting.run(main)


def test_connecting_waits_for_a_cut_link(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        await at.listen()
        at.links.split(["client"], ["server"])
        connecting = asyncio.ensure_future(at.connect())
        await asyncio.sleep(30)
        assert not connecting.done() and at.accepted.empty()
        at.links.heal_all()
        client, server = await connecting
        client.send(b"x")
        assert await receive(server, 1) == b"x"

    setting.run(main)


def test_a_local_listener_is_for_its_own_machine(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        await at.server_process.listen("127.0.0.1", PORT, at.accepted.put_nowait)
        assert await error_of(at.client_process.connect("server", PORT)) == errno.ECONNREFUSED
        await at.network.attach("server").connect("localhost", PORT)

    setting.run(main)


def test_a_killed_process_closes_its_connections(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        client, server = await at.connect()
        at.server_process.kill()
        assert await receive(client, 1) == b""
        assert await error_of(at.client_process.connect("server", PORT)) == errno.ECONNREFUSED
        with pytest.raises(OSError) as raised:
            server.send(b"x")
        assert raised.value.errno == errno.EBADF
        with pytest.raises(Crashed):
            await at.server_process.listen("", PORT, at.accepted.put_nowait)
        at.server_process = at.network.attach("server")
        await at.connect()

    setting.run(main)


def test_a_machine_without_power_is_silent_and_resets_when_it_is_back(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        client, _ = await at.connect()
        at.links.switch_off("server")
        at.server_process.vanish()
        client.send(b"anybody?")
        await asyncio.sleep(100)
        with pytest.raises(BlockingIOError):
            client.recv_into(bytearray(1))
        at.links.switch_on("server")
        assert await error_of(receive(client, 1)) == errno.ECONNRESET

    setting.run(main)


def test_a_cancelled_connect_leaves_nothing_open(setting: Setting) -> None:
    async def main(at: Setting) -> None:
        await at.listen()
        at.links.set_delay("server", "client", 10.0, 10.0)
        connecting = asyncio.ensure_future(at.client_process.connect("server", PORT))
        server = await at.accepted.get()
        connecting.cancel()
        assert await receive(server, 1) == b""
        assert not at.client_process.streams()

    setting.run(main)


def conversation(seed: int) -> str:
    async def main(client: HostNetwork, server: HostNetwork) -> None:
        accepted: asyncio.Queue[Stream] = asyncio.Queue()
        await server.listen("", PORT, accepted.put_nowait)
        ours = await client.connect("server", PORT)
        theirs = await accepted.get()
        sent = ours.send(bytes(5000))
        await receive(theirs, sent)
        ours.close()
        assert await receive(theirs, 1) == b""

    with SimLoop(seed) as loop:
        network = SimNetwork(loop, seed)
        loop.run_until_complete(main(network.attach("client"), network.attach("server")))
        return str(loop.trace)


def test_same_seed_same_trace() -> None:
    assert conversation(1) == conversation(1)
    assert conversation(1) != conversation(2)
