"""Clients that do not keep to the rules: each gets a clear end, and those who do notice nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.base.world import Stream
from penstock.testing.sim_keeper import HOST, PORT, SimKeeper
from penstock.zookeeper import operations as ops
from penstock.zookeeper.client import Client
from penstock.zookeeper.frames import FrameStream
from penstock.zookeeper.jute import Reader, read_record, write_record
from penstock.zookeeper.keeper import KeeperLimits
from penstock.zookeeper.keeper_connection import IN_FLIGHT_BYTES_MAX, UNSENT_BYTES_MAX
from penstock.zookeeper.multi import write_multi
from penstock.zookeeper.operations import OPEN_ACL
from penstock.zookeeper.protocol import (
    AuthPacket,
    ConnectRequest,
    CreateRequest,
    CreateTtlRequest,
    Nothing,
    OnlyPath,
    Op,
    PathMode,
    PathWatch,
    ReplyHeader,
    RequestHeader,
    SetAclRequest,
    SetDataRequest,
    SetWatches2,
    frame,
)


class Peer:
    """A connection that sends whatever it is told to."""

    def __init__(self, stream: Stream) -> None:
        self.answers: list[bytes] = []
        self.end_reason: str | None = None
        self.frames = FrameStream(stream, self.answers.append, self._ended, frame_bytes_max=64 << 20)

    def _ended(self, reason: str) -> None:
        self.end_reason = reason

    @classmethod
    async def reach(cls, service: SimKeeper, host: str, *, with_session: bool = False) -> Peer:
        process = service.process(host)

        async def connect() -> Peer:
            peer = cls(await process.world.network.connect(HOST, PORT))
            if with_session:
                peer.frames.send(frame(ConnectRequest(0, 0, 6000, 0, bytes(16))))
            return peer

        peer = await process.start(connect())
        if with_session:
            await service.until(lambda: bool(peer.answers))
            peer.answers.clear()
        return peer

    def ask(self, op: int, record: Any, xid: int = 1) -> None:
        self.frames.send(frame(RequestHeader(xid, op), record))

    @property
    def errors(self) -> list[int]:
        return [read_record(ReplyHeader, Reader(answer)).error for answer in self.answers]


def with_a_good_client(
    attack: Callable[[SimKeeper, Client], Any], limits: KeeperLimits | None = None, seed: int = 0
) -> None:
    """Run an attack beside a client that must be served all the time."""

    async def good(client: Client, count: list[int]) -> None:
        while True:
            loop = asyncio.get_running_loop()
            asked_s = loop.time()
            await client.set("/good", b"x")
            await client.get("/good")
            assert loop.time() - asked_s < 1, "others do not wait"
            count[0] += 1
            await asyncio.sleep(0.01)

    async def script() -> None:
        client = await service.client("good")
        await service.within("good", client.create("/good"))
        count = [0]
        serving = service.process("good").start(good(client, count))
        await attack(service, client)
        before = count[0]
        await service.until(lambda: count[0] > before + 3 or serving.done())
        assert not serving.done(), serving.exception()
        serving.cancel()

    with SimKeeper(seed, limits=limits) as service:
        service.run(script())


@pytest.mark.parametrize("size", [-1, -(1 << 31), 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize("with_session", [False, True])
def test_impossible_sizes_end_the_connection(size: int, with_session: bool) -> None:
    async def attack(service: SimKeeper, _client: Client) -> None:
        peer = await Peer.reach(service, "bad", with_session=with_session)
        peer.frames.send(size.to_bytes(4, "big", signed=True) + b"xxxx")
        await service.until(lambda: peer.end_reason is not None, 1)

    with_a_good_client(attack)


def test_stranger_may_not_send_much_nor_wait_for_long() -> None:
    async def attack(service: SimKeeper, _client: Client) -> None:
        large = await Peer.reach(service, "bad")
        large.frames.send((5000).to_bytes(4, "big"))
        await service.until(lambda: large.end_reason is not None, 1)
        silent, half = await Peer.reach(service, "bad"), await Peer.reach(service, "bad")
        half.frames.send(b"\0\0\0\x2c\0\0")
        await asyncio.sleep(5)
        assert silent.end_reason is None
        await service.until(lambda: silent.end_reason is not None and half.end_reason is not None, 10)

    with_a_good_client(attack)


def test_half_a_request_ends_with_its_session() -> None:
    async def attack(service: SimKeeper, _client: Client) -> None:
        peer = await Peer.reach(service, "bad", with_session=True)
        peer.frames.send((1 << 19).to_bytes(4, "big") + bytes(1000))
        await service.until(lambda: peer.end_reason is not None, 7)

    with_a_good_client(attack)


def test_flood_of_connections_does_not_shut_others_out() -> None:
    limits = KeeperLimits(connections_max=40, strangers_max=20)

    async def attack(service: SimKeeper, _client: Client) -> None:
        peers = [await Peer.reach(service, "bad") for _ in range(100)]
        assert service.keeper is not None
        assert len(service.keeper._connections) <= 21
        await service.client("late")
        assert sum(peer.end_reason is None for peer in peers) < 20
        with_sessions = [await Peer.reach(service, "bad", with_session=True) for _ in range(30)]
        assert sum(peer.end_reason is None for peer in with_sessions) == 30
        assert len(service.keeper._connections) <= 40

    with_a_good_client(attack, limits)


def test_flood_of_sessions_is_refused() -> None:
    async def attack(service: SimKeeper, _client: Client) -> None:
        for _ in range(9):
            (await Peer.reach(service, "bad", with_session=True)).frames.end("")
        refused = await Peer.reach(service, "bad")
        refused.frames.send(frame(ConnectRequest(0, 0, 6000, 0, bytes(16))))
        await service.until(lambda: refused.end_reason is not None, 1)
        assert not refused.answers
        await asyncio.sleep(7)
        await Peer.reach(service, "bad", with_session=True)

    with_a_good_client(attack, KeeperLimits(sessions_max=10))


def test_requests_that_cannot_be_read_or_do_not_exist() -> None:
    async def attack(service: SimKeeper, _client: Client) -> None:
        peer = await Peer.reach(service, "bad", with_session=True)
        for body in (b"", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xffa", b"\0\0\0\x02\xff\xfe\0"):
            for op in (Op.GET_DATA, Op.CREATE, Op.MULTI, Op.SET_WATCHES2, Op.ADD_WATCH):
                out = bytearray(4)
                write_record(RequestHeader(1, op), out)
                out += body
                out[:4] = (len(out) - 4).to_bytes(4, "big")
                peer.frames.send(out)
        await service.until(lambda: len(peer.answers) == 20)
        assert set(peer.errors) == {-5}
        peer.ask(77, PathMode("/", 0))
        await service.until(lambda: peer.end_reason is not None, 1)
        assert peer.errors[-1] == -6

    with_a_good_client(attack)


@pytest.mark.parametrize("seed", range(3))
def test_client_that_never_reads_is_bounded(seed: int) -> None:
    async def attack(service: SimKeeper, client: Client) -> None:
        service.simulation.network.links.buffer_bytes = 4096
        await service.within("good", client.create("/big", bytes(500_000)))
        peer = await Peer.reach(service, "bad", with_session=True)
        peer.frames.pause()
        for number in range(2000):
            peer.ask(Op.GET_DATA, PathWatch("/big", False), number)
        most = [0]
        await asyncio.sleep(0.5)
        assert service.keeper is not None
        connection = max(service.keeper._connections, key=lambda each: each._in_flight)

        async def look() -> None:
            while True:
                most[0] = max(most[0], connection._frames.unsent_bytes)
                await asyncio.sleep(0.001)

        looking = asyncio.ensure_future(look())
        await asyncio.sleep(3)
        assert peer.end_reason is None
        assert 0 < most[0] < 1_000_000
        assert connection._in_flight_bytes <= IN_FLIGHT_BYTES_MAX + 1000
        looking.cancel()

    with_a_good_client(attack, seed=seed)


def test_watcher_that_never_reads_is_given_up() -> None:
    async def attack(service: SimKeeper, client: Client) -> None:
        service.simulation.network.links.buffer_bytes = 16_384
        long_path = "/" + "x" * 60_000
        await service.within("good", client.create(long_path))
        peer = await Peer.reach(service, "bad", with_session=True)
        peer.ask(Op.ADD_WATCH, PathMode(long_path, 0))
        await service.until(lambda: bool(peer.answers))
        peer.frames.pause()
        writer = await service.client("writer")

        async def write() -> None:
            for _ in range(UNSENT_BYTES_MAX // 60_000 + 5):
                await writer.set(long_path, b"")

        assert service.keeper is not None
        before = len(service.keeper._connections)
        await service.within("writer", write())
        assert len(service.keeper._connections) < before

    with_a_good_client(attack)


def test_all_together_have_a_budget() -> None:
    """Beyond it each connection finishes what it has before it reads on; all of it is done in the end."""
    limits = KeeperLimits(in_flight_bytes_max=100_000)

    async def attack(service: SimKeeper, client: Client) -> None:
        await service.within("good", client.create("/target"))
        peers = [await Peer.reach(service, "bad", with_session=True) for _ in range(5)]
        for number in range(20):
            for peer in peers:
                peer.ask(Op.SET_DATA, SetDataRequest("/target", bytes(50_000), -1), number)
        assert service.keeper is not None
        while not all(len(peer.answers) == 20 for peer in peers):
            assert service.keeper.in_flight_bytes <= 100_000 + 6 * 60_000
            await asyncio.sleep(0.001)
        assert all(set(peer.errors) == {0} for peer in peers)
        await service.until(lambda: service.keeper is not None and service.keeper.in_flight_bytes < 1000)

    with_a_good_client(attack, limits)


@pytest.mark.parametrize("seed", range(6))
def test_mutated_requests_break_nothing(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Good requests with bytes changed, cut out or doubled: each gets an answer, or ends its own connection."""
    draw = random.Random(seed)

    def mutated() -> bytes:
        record = draw.choice(
            [
                (Op.CREATE2, CreateRequest("/x", b"data", OPEN_ACL, draw.randrange(8))),
                (Op.CREATE_TTL, CreateTtlRequest("/t", b"", OPEN_ACL, draw.randrange(8), draw.randrange(9))),
                (Op.SET_WATCHES2, SetWatches2(0, ["/a"], ["/b"], ["/c"], ["/d"], ["/e"])),
                (Op.SET_ACL, SetAclRequest("/x", OPEN_ACL, -1)),
                (Op.SET_DATA, SetDataRequest("/x", b"", -1)),
                (Op.ADD_WATCH, PathMode("/x", draw.randrange(3))),
                (Op.REMOVE_WATCHES, PathMode("/x", draw.randrange(5))),
                (Op.AUTH, AuthPacket(0, "digest", b"a:b")),
                (Op.GET_EPHEMERALS, OnlyPath("/")),
                (draw.randrange(-12, 110), PathWatch("/x", True)),
            ]
        )
        data = frame(RequestHeader(1, record[0]), record[1])[4:]
        if draw.random() < 0.3:
            body = bytearray()
            write_multi([ops.Create("/m"), ops.Delete("/m"), ops.Check("/x", 0)], body)
            data = frame(RequestHeader(1, Op.MULTI))[4:] + body
        for _ in range(draw.randrange(4)):
            place = draw.randrange(len(data))
            match draw.randrange(3):
                case 0:
                    data[place] = draw.randrange(256)
                case 1:
                    del data[place : place + draw.randrange(1, 5)]
                case _:
                    data[place:place] = data[place : place + draw.randrange(1, 9)]
            if not data:
                break
        return len(data).to_bytes(4, "big") + bytes(data)

    async def attack(service: SimKeeper, _client: Client) -> None:
        for _ in range(25):
            peer = await Peer.reach(service, "bad", with_session=True)
            for _ in range(20):
                peer.frames.send(mutated())
            peer.ask(Op.PING, Nothing(), 99)
            await service.until(
                lambda peer=peer: (
                    peer.end_reason is not None or any(each[:4] == b"\xff\xff\xff\xfe" for each in peer.answers)
                )
            )
            peer.frames.end("")

    with_a_good_client(attack, seed=seed)
    assert "failed" not in caplog.text
