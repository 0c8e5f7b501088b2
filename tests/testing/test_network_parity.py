"""The simulated network against the real one: the same scripts see the same bytes, ends and errors."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base._real_poll import EpollPoll, LoopPoll
from penstock.base.real_disk import RealDisk
from penstock.base.real_network import RealNetwork
from penstock.base.world import Disk, Listener, Network, Stream
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_loop import SimLoop
from penstock.testing.sim_network import SimNetwork

T = TypeVar("T")
DEADLINE_S = 10
WatchMethod = Callable[[Callable[[], None] | None], None]


async def fires(watch: WatchMethod) -> None:
    """Wait for one call of a watch."""
    happened = asyncio.Event()
    watch(happened.set)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await happened.wait()
    finally:
        watch(None)


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except OSError as error:
        return type(error), error.errno


async def receive(stream: Stream, count: int = 100) -> object:
    """The bytes, or the error, of the next receive that does not have to wait."""
    await fires(stream.watch_read)
    buffer = bytearray(count)
    found = outcome(lambda: stream.recv_into(buffer))
    return bytes(buffer[:found]) if isinstance(found, int) else found


async def receive_all(stream: Stream, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        part = await receive(stream, 100_000)
        assert isinstance(part, bytes) and part, part
        received += part
    return bytes(received)


class Pair:
    """A listener and one connection to it, both ends."""

    def __init__(self, listener: Listener, client: Stream, server: Stream) -> None:
        self.listener = listener
        self.client = client
        self.server = server

    def close(self) -> None:
        for thing in (self.client, self.server, self.listener):
            thing.close()


async def connected(network: Network) -> Pair:
    accepted: asyncio.Queue[Stream] = asyncio.Queue()
    listener = await network.listen("127.0.0.1", 0, accepted.put_nowait)
    client = await network.connect("127.0.0.1", listener.address.port)
    async with asyncio.timeout(DEADLINE_S):
        return Pair(listener, client, await accepted.get())


async def both_ways(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    seen: list[object] = [pair.client.send(b"ping")]
    seen.append(await receive(pair.server))
    seen.append(pair.server.send(memoryview(b"pong")))
    seen.append(await receive(pair.client, 2))
    seen.append(await receive(pair.client, 2))
    seen.append(pair.client.peer == pair.server.local == pair.listener.address)
    seen.append(pair.client.local == pair.server.peer)
    seen.append(pair.client.peer.host)
    pair.close()
    return seen


async def nothing_there(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    seen = [outcome(lambda: pair.client.recv_into(bytearray(9))), pair.client.send(b"")]
    seen.append(pair.client.recv_into(bytearray(0)))
    pair.close()
    return seen


async def closing_ends(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    pair.client.send(b"last")
    pair.client.close()
    pair.client.close()
    seen = [await receive(pair.server), await receive(pair.server), await receive(pair.server)]
    pair.close()
    return seen


async def closing_with_unread_bytes_resets(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    pair.client.send(b"never read")
    await fires(pair.server.watch_read)
    pair.server.send(b"bye")
    await fires(pair.client.watch_read)
    pair.server.close()
    seen = [await receive(pair.client) for _ in range(3)]
    seen.append(outcome(lambda: pair.client.send(b"x")))
    pair.close()
    return seen


async def sending_to_a_closed_end(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    pair.server.close()
    seen = [await receive(pair.client), pair.client.send(b"into the void")]
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = outcome(lambda: pair.client.send(b"x"))
            if found != 1:
                break
            await asyncio.sleep(0.001)
    seen.append(found)
    seen.append(outcome(lambda: pair.client.send(b"x")))
    seen.append(await receive(pair.client))
    pair.close()
    return seen


async def a_full_buffer_waits(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    chunk = bytes(range(256)) * 256
    sent = 0
    full: object = None
    while full is None:
        found = outcome(lambda: pair.client.send(chunk))
        if isinstance(found, int):
            assert 0 < found <= len(chunk)
            sent += found
        else:
            full = found
    received = 0
    while received < sent:
        received += len(await receive_all(pair.server, 1))
    await fires(pair.client.watch_write)
    pair.client.send(b"more")
    seen = [full, received == sent, await receive_all(pair.server, 4)]
    pair.close()
    return seen


async def send_all(stream: Stream, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        await fires(stream.watch_write)
        rest = rest[stream.send(rest[:7000]) :]


async def order_is_kept(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    content = b"".join(b"%06d" % number for number in range(50_000))
    _, received = await asyncio.gather(send_all(pair.client, content), receive_all(pair.server, len(content)))
    pair.close()
    return received == content


async def refused(network: Network, disk: Disk, folder: str) -> object:
    listener = await network.listen("127.0.0.1", 0, lambda stream: None)
    listener.close()
    listener.close()
    try:
        await network.connect("127.0.0.1", listener.address.port)
    except OSError as error:
        return type(error), error.errno
    return None


async def address_in_use(network: Network, disk: Disk, folder: str) -> object:
    listener = await network.listen("127.0.0.1", 0, lambda stream: None)
    try:
        await network.listen("127.0.0.1", listener.address.port, lambda stream: None)
    except OSError as error:
        return type(error), error.errno
    finally:
        listener.close()
    return None


async def not_my_address(network: Network, disk: Disk, folder: str) -> object:
    try:
        await network.listen("192.0.2.1", 0, lambda stream: None)
    except OSError as error:
        return type(error), error.errno
    return None


async def a_closed_stream(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    pair.client.close()
    seen = [outcome(lambda: pair.client.send(b"x")), outcome(lambda: pair.client.recv_into(bytearray(1)))]
    pair.client.watch_read(None)
    pair.close()
    return seen


async def a_listener_can_end_before_its_connections(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    pair.listener.close()
    pair.client.send(b"still here")
    seen = await receive(pair.server)
    pair.close()
    return seen


async def a_file_is_sent(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    file = disk.open(f"{folder}/file", create=True)
    file.write([b"0123456789"], 0)
    seen: list[object] = [pair.client.send_file(file, 2, 5), pair.client.send_file(file, 8, 100)]
    seen.append(pair.client.send_file(file, 10, 5))
    seen.append(await receive_all(pair.server, 7))
    file.close()
    pair.close()
    return seen


async def a_watch_repeats_while_there_is_something(network: Network, disk: Disk, folder: str) -> object:
    pair = await connected(network)
    pair.client.send(b"abc")
    seen: list[bytes] = []
    done = asyncio.Event()

    def read_one_byte() -> None:
        buffer = bytearray(1)
        pair.server.recv_into(buffer)
        seen.append(bytes(buffer))
        if len(seen) == 3:
            pair.server.watch_read(None)
            done.set()

    pair.server.watch_read(read_one_byte)
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()
    pair.client.send(b"d")
    await fires(pair.client.watch_write)
    seen.append(await receive_all(pair.server, 1))
    pair.close()
    return seen


async def after_reading_comes_after_reading(network: Network, disk: Disk, folder: str) -> object:
    """And once, also for what nobody reads, and from outside of a watch."""
    first, second = await connected(network), await connected(network)
    seen: list[str] = []
    done = asyncio.Event()

    def ended() -> None:
        seen.append("after")
        if len(seen) == 5:
            done.set()

    def reading(stream: Stream) -> Callable[[], None]:
        def read() -> None:
            stream.recv_into(bytearray(10))
            seen.append("read")
            stream.after_reading(ended)

        return read

    first.client.send(b"x")
    second.client.send(b"y")
    await fires(second.server.watch_read)
    first.server.watch_read(reading(first.server))
    second.server.watch_read(reading(second.server))
    first.server.after_reading(ended)
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()
    first.close()
    second.close()
    return sorted(seen), seen[-1]


SCRIPTS = [
    after_reading_comes_after_reading,
    both_ways,
    nothing_there,
    closing_ends,
    closing_with_unread_bytes_resets,
    sending_to_a_closed_end,
    a_full_buffer_waits,
    order_is_kept,
    refused,
    address_in_use,
    not_my_address,
    a_closed_stream,
    a_listener_can_end_before_its_connections,
    a_file_is_sent,
    a_watch_repeats_while_there_is_something,
]


def simulate(script: Callable[[Network], Coroutine[Any, Any, T]]) -> T:
    with SimLoop() as loop:
        network: Network = SimNetwork(loop, partial_chance=0).attach("machine")
        result: T = loop.run_until_complete(script(network))
        return result


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_script(script: Callable[[Network, Disk, str], Coroutine[Any, Any, object]], tmp_path: Path) -> None:
    simulated = simulate(lambda network: script(network, SimDisk(), ""))
    for poll in (EpollPoll, LoopPoll):
        real = asyncio.run(script(RealNetwork(poll), RealDisk(), str(tmp_path)))
        assert simulated == real


steps = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1), st.binary(max_size=20)),
    st.tuples(st.just("receive"), st.integers(0, 1), st.integers(1, 30)),
    st.tuples(st.just("close"), st.integers(0, 1), st.none()),
)


async def run_steps(
    network: Network, script: list[tuple[str, int, Any]], expected: list[object] | None
) -> list[object]:
    """What each step gave. A real receive that finds nothing where the simulation had something waits for it."""
    pair = await connected(network)
    ends = [pair.client, pair.server]
    is_open = [True, True]
    seen: list[object] = []
    for kind, end, argument in script:
        if kind == "close":
            ends[end].close()
            is_open[end] = False
            seen.append(None)
        elif kind == "send" and is_open[1 - end]:
            seen.append(outcome(lambda end=end, argument=argument: ends[end].send(argument)))  # type: ignore[misc]
        elif kind == "receive":
            seen.append(await receive_step(ends[end], argument, expected[len(seen)] if expected else None))
        else:
            break
        if expected is None:
            await asyncio.sleep(1)
    pair.close()
    return seen


WOULD_BLOCK = (BlockingIOError, errno.EAGAIN)


async def receive_step(stream: Stream, count: int, expected: object) -> object:
    buffer = bytearray(count)
    found = outcome(lambda: stream.recv_into(buffer))
    if found == WOULD_BLOCK and expected not in (None, WOULD_BLOCK):
        return await receive(stream, count)
    return bytes(buffer[:found]) if isinstance(found, int) else found


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=12))
def test_random_scripts_do_not_differ(script: list[tuple[str, int, Any]]) -> None:
    simulated = simulate(lambda network: run_steps(network, script, None))
    assert asyncio.run(run_steps(RealNetwork(), script, simulated)) == simulated
