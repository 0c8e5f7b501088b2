"""Coordination in process: what a broker relies on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.testing.sim_disk import SimDisk
from penstock.zookeeper.coordination import Coordination, SessionState
from penstock.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from penstock.zookeeper.local import REQUEST_SIZE_BYTES_MAX, LocalCoordination
from penstock.zookeeper.operations import Changed, Check, Create, Created, EventType, SetData, WatchEvent

FOLDER = "/keeper"


class FixedClock:
    def wall_ms(self) -> int:
        return 1000

    def monotonic(self) -> float:
        return 1.0


def run(work: Callable[[LocalCoordination], Awaitable[None]], disk: SimDisk | None = None) -> None:
    disk = disk or SimDisk()
    disk.delays_s = dict.fromkeys(disk.delays_s, (0.0, 0.0))

    async def main() -> None:
        session = await LocalCoordination.open(disk, FixedClock(), FOLDER)
        await work(session)
        await session.close()

    asyncio.run(main())


def test_it_is_a_coordination() -> None:
    async def work(session: LocalCoordination) -> None:
        coordination: Coordination = session
        assert await coordination.create("/a", b"1") == "/a"
        data, stat = await coordination.get("/a")
        assert (data, stat.version, stat.ctime_ms) == (b"1", 0, 1000)
        assert (await coordination.set("/a", b"22", 0)).version == 1
        with pytest.raises(BadVersionError):
            await coordination.set("/a", b"", 0)
        assert await coordination.create("/a/s-", sequential=True) == "/a/s-0000000000"
        assert (await coordination.children("/a"))[0] == ["s-0000000000"]
        await coordination.delete("/a/s-0000000000", 0)
        await coordination.sync()
        assert await coordination.exists("/missing") is None
        with pytest.raises(NoNodeError):
            await coordination.get("/missing")

    run(work)


def test_a_multi_is_all_or_nothing() -> None:
    async def work(session: LocalCoordination) -> None:
        results = await session.multi([Create("/a"), SetData("/a", b"x"), Check("/a", 1)])
        assert [type(result) for result in results[:2]] == [Created, Changed]
        with pytest.raises(NodeExistsError) as raised:
            await session.multi([Create("/b"), Create("/a"), Create("/c")])
        assert raised.value.operation_index == 1
        assert (await session.children("/"))[0] == ["a"]

    run(work)


def test_watches_are_told_before_the_answer_and_once() -> None:
    async def work(session: LocalCoordination) -> None:
        told: list[WatchEvent] = []
        await session.exists("/a", told.append)
        with pytest.raises(NoNodeError):
            await session.get("/b", told.append)
        await session.create("/a")
        assert told == [WatchEvent(EventType.CREATED, "/a")]
        told.clear()
        await session.get("/a", told.append)
        await session.children("/a", told.append)
        await session.multi([SetData("/a", b"1"), SetData("/a", b"2"), Create("/a/x"), Create("/b")])
        assert told == [WatchEvent(EventType.DATA_CHANGED, "/a"), WatchEvent(EventType.CHILDREN_CHANGED, "/a")]

    run(work)


def test_sessions_own_their_ephemerals_and_watches() -> None:
    async def work(session: LocalCoordination) -> None:
        other = await LocalCoordination.connect(session._store)
        assert other.session_id != session.session_id
        states: list[SessionState] = []
        lost: list[WatchEvent] = []
        told: list[WatchEvent] = []
        other.add_listener(states.append)
        await other.create("/e", ephemeral=True)
        await other.exists("/e", lost.append)
        await session.exists("/e", told.append)
        await other.expire()
        assert (other.state, states) == (SessionState.EXPIRED, [SessionState.EXPIRED])
        assert (told, lost) == ([WatchEvent(EventType.DELETED, "/e")], [])
        with pytest.raises(SessionExpiredError):
            await other.get("/")
        assert await session.exists("/e") is None

    run(work)


def test_everything_but_ephemerals_survives_a_kill() -> None:
    disk = SimDisk()

    async def first(session: LocalCoordination) -> None:
        await session.create("/kept", b"data")
        await session.create("/e", ephemeral=True)
        disk.kill()

    async def second(session: LocalCoordination) -> None:
        assert (await session.get("/kept"))[0] == b"data"
        assert await session.exists("/e") is None

    with pytest.raises(ConnectionLossError):
        run(first, disk)
    run(second, disk)
    run(second, disk)


def test_listeners_hear_that_the_disk_failed() -> None:
    disk = SimDisk()

    async def work(session: LocalCoordination) -> None:
        states: list[SessionState] = []
        session.add_listener(states.append)
        disk.fail_sync()
        with pytest.raises(ConnectionLossError):
            await session.create("/a")
        with pytest.raises(ConnectionLossError):
            await session.get("/")
        assert states == [SessionState.FAILED]

    run(work, disk)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/./a", "/\x00", "/\ud800", "/￿"])
def test_bad_paths_are_refused(path: str) -> None:
    async def work(session: LocalCoordination) -> None:
        for call in (session.get(path), session.exists(path), session.children(path), session.create(path)):
            with pytest.raises(BadArgumentsError):
                await call

    run(work)


def test_a_request_that_zookeeper_would_refuse_is_refused() -> None:
    async def work(session: LocalCoordination) -> None:
        with pytest.raises(BadArgumentsError, match="above the limit"):
            await session.create("/a", bytes(REQUEST_SIZE_BYTES_MAX))

    run(work)
