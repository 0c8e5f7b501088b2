"""The connection of a follower: answers in pieces, large ones, several at once, kept ones, and wrong ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.base.world import Address, Buffer, File
from penstock.broker.follower_link import FIRST_BUFFER_BYTES, FollowerLink, LinkEnded
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k01_fetch import API as FETCH
from penstock.wire.messages.k01_fetch import FetchRequest
from penstock.wire.messages.k18_api_versions import API as API_VERSIONS
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest

VERSION = 18


class FakeStream:
    """What the test says has arrived, in pieces."""

    def __init__(self) -> None:
        self.peer = self.local = Address("", 0)
        self.arrived = bytearray()
        self.sent = bytearray()
        self.is_closed = self.is_ended = False
        self.on_readable: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.room: int | None = None

    def recv_into(self, buffer: Buffer) -> int:
        if not self.arrived:
            if self.is_ended:
                return 0
            raise BlockingIOError
        count = min(len(buffer), len(self.arrived))
        memoryview(buffer)[:count] = self.arrived[:count]
        del self.arrived[:count]
        return count

    def send(self, data: Buffer) -> int:
        count = len(data) if self.room is None else min(len(data), self.room)
        if not count:
            raise BlockingIOError
        if self.room is not None:
            self.room -= count
        self.sent += memoryview(data)[:count]
        return count

    send_more = send

    def send_file(self, file: File, offset: int, count: int) -> int:
        raise NotImplementedError

    def watch_read(self, callback: Callable[[], None] | None) -> None:
        self.on_readable = callback

    def watch_write(self, callback: Callable[[], None] | None) -> None:
        self.on_writable = callback

    def after_reading(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.is_closed = True

    def deliver(self, data: bytes, size: int) -> None:
        """In pieces of a size, as long as somebody reads."""
        for start in range(0, len(data), size):
            self.arrived += data[start : start + size]
            while self.arrived and self.on_readable is not None:
                self.on_readable()

    def end(self) -> None:
        self.is_ended = True
        assert self.on_readable is not None
        self.on_readable()


def answer(number: int, content: bytes) -> bytes:
    body = number.to_bytes(4, "big") + b"\0" + content
    return len(body).to_bytes(4, "big") + body


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(1, limit_s=100) as made:
        yield made


class Taken:
    """The answers that were handed over."""

    def __init__(self, link: FollowerLink, *, is_quick: bool = True) -> None:
        self.link = link
        self.is_quick = is_quick
        self.contents: list[memoryview] = []

    def __call__(self, frame: memoryview, position: int) -> None:
        self.contents.append(frame[position:])
        if self.is_quick:
            self.link.done()


def with_link(simulation: Simulation, drive: Callable[[FakeStream, FollowerLink], Awaitable[None]]) -> None:
    async def main() -> None:
        stream = FakeStream()
        await drive(stream, FollowerLink(stream, simulation.machine("m").clock, "me"))

    simulation.run(main())


@pytest.mark.parametrize("seed", range(10))
def test_answers_arrive_in_any_pieces(simulation: Simulation, seed: int) -> None:
    draws = random.Random(seed)
    contents = [draws.randbytes(draws.choice([0, 1, 500, 70_000, 300_000])) for _ in range(8)]

    async def drive(stream: FakeStream, link: FollowerLink) -> None:
        got: list[bytes] = []

        def take(frame: memoryview, position: int) -> None:
            got.append(bytes(frame[position:]))
            link.done()

        for _ in contents:
            link.request(FETCH, VERSION, FetchRequest(max_wait_ms=1, min_bytes=1), take)
        stream.deliver(
            b"".join(answer(number + 1, content) for number, content in enumerate(contents)),
            draws.choice([1000, 1_000_000, 65_536]),
        )
        assert got == contents and not link.is_over

    with_link(simulation, drive)


def test_one_answer_at_a_time_and_nothing_is_read_meanwhile(simulation: Simulation) -> None:
    async def drive(stream: FakeStream, link: FollowerLink) -> None:
        taken = Taken(link, is_quick=False)
        for _ in range(3):
            link.request(FETCH, VERSION, FetchRequest(max_wait_ms=1, min_bytes=1), taken)
        stream.deliver(answer(1, b"one") + answer(2, b"two") + answer(3, b"x" * 100_000), 1 << 20)
        assert [bytes(content) for content in taken.contents] == [b"one"]
        assert stream.on_readable is None and stream.arrived
        link.done()
        assert [bytes(content) for content in taken.contents[1:]] == [b"two"]
        link.done()
        assert stream.on_readable is not None
        stream.deliver(b"", 1)
        while stream.arrived:
            stream.on_readable()
        assert len(taken.contents[2]) == 100_000

    with_link(simulation, drive)


def test_the_buffer_is_used_again_unless_it_is_kept(simulation: Simulation) -> None:
    async def drive(stream: FakeStream, link: FollowerLink) -> None:
        taken = Taken(link, is_quick=False)
        for _ in range(3):
            link.request(FETCH, VERSION, FetchRequest(max_wait_ms=1, min_bytes=1), taken)
        stream.deliver(answer(1, b"a" * 200_000), 1 << 20)
        first = taken.contents[0].obj
        link.done()
        stream.deliver(answer(2, b"b" * 200_000), 1 << 20)
        assert taken.contents[1].obj is first
        link.keep_buffer()
        link.done()
        stream.deliver(answer(3, b"c" * 200_000), 1 << 20)
        assert taken.contents[2].obj is not first
        assert bytes(taken.contents[1][:3]) == b"bbb"

    with_link(simulation, drive)


def test_requests_wait_for_room(simulation: Simulation) -> None:
    async def drive(stream: FakeStream, link: FollowerLink) -> None:
        stream.room = 10
        for _ in range(2):
            link.request(FETCH, VERSION, FetchRequest(max_wait_ms=1, min_bytes=1), Taken(link))
        assert len(stream.sent) == 10 and stream.on_writable is not None
        stream.room = None
        stream.on_writable()
        assert stream.on_writable is None
        size = int.from_bytes(stream.sent[:4], "big") + 4
        assert len(stream.sent) == 2 * size

    with_link(simulation, drive)


@pytest.mark.parametrize(
    "wrong",
    [
        answer(2, b""),
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\x7f\xff\xff\xff\0\0\0\0",
        b"\0\0\0\2ab",
        answer(1, b"") + answer(1, b""),
    ],
)
def test_what_is_no_answer_ends_the_connection(simulation: Simulation, wrong: bytes) -> None:
    async def drive(stream: FakeStream, link: FollowerLink) -> None:
        link.request(FETCH, VERSION, FetchRequest(max_wait_ms=1, min_bytes=1), Taken(link))
        stream.deliver(wrong, 1 << 20)
        assert link.is_over and stream.is_closed and "answer" in link.over.result()

    with_link(simulation, drive)


def test_a_bug_in_who_takes_an_answer_ends_the_connection(simulation: Simulation) -> None:
    async def drive(stream: FakeStream, link: FollowerLink) -> None:
        def take(_frame: memoryview, _position: int) -> None:
            raise AssertionError("a bug")

        link.request(FETCH, VERSION, FetchRequest(max_wait_ms=1, min_bytes=1), take)
        stream.deliver(answer(1, b""), 1 << 20)
        assert link.is_over and stream.is_closed

    with_link(simulation, drive)


def test_who_asks_hears_that_the_connection_is_over(simulation: Simulation) -> None:
    async def drive(stream: FakeStream, link: FollowerLink) -> None:
        asking = asyncio.ensure_future(link.ask(API_VERSIONS, 3, ApiVersionsRequest()))
        await asyncio.sleep(0)
        stream.end()
        with pytest.raises(LinkEnded, match="closed the connection"):
            await asking
        with pytest.raises(LinkEnded):
            await link.ask(API_VERSIONS, 3, ApiVersionsRequest())

    with_link(simulation, drive)


def test_silence_counts_while_an_answer_is_due(simulation: Simulation) -> None:
    async def drive(stream: FakeStream, link: FollowerLink) -> None:
        await asyncio.sleep(5)
        assert link.silent_s == 0
        link.request(FETCH, VERSION, FetchRequest(max_wait_ms=1, min_bytes=1), Taken(link))
        await asyncio.sleep(3)
        assert link.silent_s == pytest.approx(3)
        stream.deliver(answer(1, b"x" * FIRST_BUFFER_BYTES)[:100], 1 << 20)
        assert link.silent_s == 0
        await asyncio.sleep(1)
        assert link.silent_s == pytest.approx(1)

    with_link(simulation, drive)
