"""Our client against real servers: Apache ZooKeeper alone, as an ensemble whose servers are killed, and the keeper.

A proxy in between cuts, delays and swallows answers. What was answered must be there; what was not is read again.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

import pytest

from penstock.base.real_world import real_world
from penstock.base.world import Address
from penstock.testing.tcp_proxy import TcpProxy
from penstock.testing.zookeeper_processes import ApacheZooKeeper, KeeperProcess, ask
from penstock.zookeeper import operations as ops
from penstock.zookeeper.client import Client
from penstock.zookeeper.coordination import Coordination, SessionState
from penstock.zookeeper.errors import (
    ConnectionLossError,
    CoordinationError,
    NoAuthError,
    NodeExistsError,
    SessionExpiredError,
)
from penstock.zookeeper.local import LocalCoordination
from penstock.zookeeper.operations import Acl, EventType, Identity, Stat, WatchEvent
from penstock.zookeeper.session import Session

pytestmark = pytest.mark.zookeeper

T = TypeVar("T")
TIMEOUT_MS = 4000
DEADLINE_S = 60.0


def run(script: Coroutine[Any, Any, T]) -> T:
    async def with_deadline() -> T:
        async with asyncio.timeout(3 * DEADLINE_S):
            return await script

    return asyncio.run(with_deadline())


async def connect(ports: Sequence[int], **options: Any) -> Client:
    options.setdefault("timeout_ms", TIMEOUT_MS)
    return await Client.connect(real_world(), [Address("127.0.0.1", port) for port in ports], **options)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def known(ask_for: Callable[[], Awaitable[T]]) -> T:
    """The answer to a read, asked again while connections break."""
    while True:
        try:
            return await ask_for()
        except ConnectionLossError:
            continue


# ── the same scripts ─────────────────────────────────────────────────────────────────────────────────────────────────

PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep", "/c")


def draw_operation(draw: random.Random) -> ops.Operation:
    path, version = draw.choice(PATHS), draw.choice([-1, -1, -1, 0, 1, 2])
    match draw.randrange(8):
        case 0 | 1 | 2 | 3:
            return ops.Create(path, draw.randbytes(5), draw.random() < 0.3, draw.random() < 0.2)
        case 4 | 5:
            return ops.Delete(path, version)
        case 6:
            return ops.SetData(path, draw.randbytes(5), version)
        case _:
            return ops.Check(path, version)


async def perform(client: Coordination, draw: random.Random, events: list[WatchEvent]) -> Any:
    """One thing of a script, chosen by chance; its outcome without what is a server's own."""
    path = draw.choice((*PATHS, "/"))
    watch = events.append if draw.random() < 0.4 else None
    operation = draw_operation(draw)
    kind = draw.randrange(8)
    try:
        match kind:
            case 0:
                data, stat = await client.get(path, watch)
                return data, shown(stat)
            case 1:
                return shown(await client.exists(path, watch))
            case 2:
                names, stat = await client.children(path, watch)
                return names, shown(stat)
            case 3 | 4:
                results = await client.multi([operation, draw_operation(draw)])
                return [result.path if isinstance(result, ops.Created) else type(result) for result in results]
            case _:
                match operation:
                    case ops.Create(path, data, ephemeral, sequential):
                        return await client.create(path, data, ephemeral=ephemeral, sequential=sequential)
                    case ops.Delete(path, version):
                        return await client.delete(path, version)
                    case ops.SetData(path, data, version):
                        return shown(await client.set(path, data, version))
                    case _:
                        return await client.sync(path)
    except CoordinationError as error:
        return type(error), error.operation_index if kind in (3, 4) else None


def shown(stat: Stat | None) -> Any:
    if stat is None:
        return None
    return (
        stat.version,
        stat.cversion,
        stat.aversion,
        bool(stat.ephemeral_owner),
        stat.data_length,
        stat.num_children,
        stat.mzxid == stat.czxid,
    )


async def story(client: Coordination, seed: int, count: int) -> list[Any]:
    """All that a client sees in one script."""
    draw, told = random.Random(seed), []
    for _ in range(count):
        events: list[WatchEvent] = []
        told.append(await perform(client, draw, events))
        await client.sync()
        told.append(sorted(events))
    return told


@pytest.mark.parametrize("seed", range(4))
def test_scripts_are_the_same_with_every_service(
    apache_zookeeper: ApacheZooKeeper,
    ensemble: list[ApacheZooKeeper],
    keeper_process: KeeperProcess,
    tmp_path: Any,
    seed: int,
    is_long: bool,
) -> None:
    count = 800 if is_long else 80

    async def over_network(ports: list[int]) -> list[Any]:
        root = f"/story-{uuid.uuid4().hex}"
        plain = await connect(ports)
        await plain.create(root)
        client = await connect(ports, chroot=root)
        try:
            return await story(client, seed, count)
        finally:
            await client.close()
            await plain.close()

    async def script() -> list[list[Any]]:
        world = real_world()
        local = await LocalCoordination.open(world.disk, world.clock, str(tmp_path / "local"))
        stories = [await story(local, seed, count)]
        await local.close()
        for ports in ([apache_zookeeper.port], [server.port for server in ensemble], [keeper_process.port]):
            stories.append(await over_network(ports))
        return stories

    local, *others = run(script())
    for other in others:
        for step, (expected, found) in enumerate(zip(others[0], other, strict=True)):
            assert found == expected, step
    assert local == others[0]


# ── one server ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["apache_zookeeper", "keeper_process"])
def server_port(request: pytest.FixtureRequest) -> int:
    port: int = request.getfixturevalue(request.param).port
    return port


def test_session_is_taken_over_and_ended_by_whoever_knows_its_password(server_port: int) -> None:
    async def script() -> None:
        path = f"/{uuid.uuid4().hex}"
        broker, other = await connect([server_port]), await connect([server_port])
        await broker.create(path, ephemeral=True)
        gone: list[WatchEvent] = []
        await other.exists(path, gone.append)
        session = broker.session
        broker.abandon()
        watcher = await connect([server_port], session=session)
        assert watcher.session_id == session.session_id
        await watcher.close()
        await until(lambda: bool(gone))
        assert gone == [WatchEvent(EventType.DELETED, path)]
        for wrong in (session, Session(other.session_id, bytes(16)), Session(123456, bytes(16))):
            with pytest.raises(SessionExpiredError):
                await connect([server_port], session=wrong)
        await other.close()

    run(script())


def test_digest(server_port: int) -> None:
    async def script() -> None:
        path = f"/{uuid.uuid4().hex}"
        mine, other = await connect([server_port], digest=b"me:secret"), await connect([server_port])
        await mine.create(path, b"x", acl=(Acl(ops.ALL_PERMISSIONS, Identity("auth", "")),))
        assert (await mine.get(path))[0] == b"x"
        with pytest.raises(NoAuthError):
            await other.get(path)
        await mine.close()
        await other.close()

    run(script())


@pytest.mark.parametrize("seed", range(2))
def test_proxy_that_cuts_delays_and_swallows(server_port: int, seed: int, is_long: bool) -> None:
    """A counter with versions: each increment is answered, or found out about; watches tell the last one."""

    async def script() -> None:
        draw = random.Random(seed)
        path = f"/{uuid.uuid4().hex}"
        async with TcpProxy("127.0.0.1", server_port) as proxy:
            client = await connect([proxy.port], timeout_ms=2000)
            watcher = await connect([proxy.port], timeout_ms=30_000)
            direct = await connect([server_port])
            await direct.create(path)
            told = asyncio.Event()
            spoiling = asyncio.ensure_future(spoil(proxy, draw))
            watching = asyncio.ensure_future(follow(watcher, path, told))
            version, unknown = 0, 0
            while unknown < (60 if is_long else 6):
                try:
                    version = (await client.set(path, b"", version)).version
                except ConnectionLossError:
                    unknown += 1
                    found = (await known(partial(client.get, path)))[1].version
                    assert found in (version, version + 1)
                    version = found
                except SessionExpiredError:
                    client = await connect([proxy.port], timeout_ms=2000)
                    version = (await known(partial(client.get, path)))[1].version
            spoiling.cancel()
            proxy.heal()
            proxy.cut()
            assert (await direct.get(path))[1].version == version
            async with asyncio.timeout(DEADLINE_S):
                while await newest(watching, watcher) < version:
                    await told.wait()
                    told.clear()
            watching.cancel()
            await asyncio.gather(spoiling, watching, return_exceptions=True)
            for each in (client, watcher, direct):
                await each.close()

    seen: list[int] = [0]

    async def follow(client: Client, path: str, told: asyncio.Event) -> None:
        again = asyncio.Event()
        while True:
            again.clear()
            _, stat = await known(lambda: client.get(path, lambda _event: again.set()))
            seen[0] = stat.version
            told.set()
            await again.wait()

    async def newest(watching: asyncio.Future[None], client: Client) -> int:
        assert not watching.done() and client.state is not SessionState.EXPIRED
        return seen[0]

    run(script())


async def spoil(proxy: TcpProxy, draw: random.Random) -> None:
    """Something bad, then a moment of peace, and again."""
    while True:
        match draw.randrange(4):
            case 0:
                proxy.cut()
            case 1:
                proxy.delay_s = draw.random() * 0.05
            case 2:
                proxy.swallows_answers = True
            case _:
                proxy.swallows_requests = True
        await asyncio.sleep(draw.random() * 0.1)
        was_swallowing = proxy.swallows_answers or proxy.swallows_requests
        proxy.heal()
        if was_swallowing:
            proxy.cut()
        await asyncio.sleep(draw.random() * 0.1)


# ── an ensemble ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ensemble_whose_servers_are_killed(ensemble: list[ApacheZooKeeper], is_long: bool) -> None:
    """Names are taken in order while servers die and come back; the session and its ephemeral znode live on."""

    async def script() -> None:
        root = f"/{uuid.uuid4().hex}"
        ports = [server.port for server in ensemble]
        client = await connect(ports, timeout_ms=20_000)
        await client.create(root)
        await client.create(f"{root}/alive", ephemeral=True)
        session_id = client.session_id
        writing = asyncio.ensure_future(write(client, root))
        leader_first = sorted(ensemble, key=lambda server: b"Mode: leader" not in ask(server.port, b"srvr"))
        for server in leader_first * (3 if is_long else 1):
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
        count[1] = count[0] + 20
        await writing
        assert client.session_id == session_id
        names, _ = await known(lambda: client.children(root))
        assert names == sorted(["alive", *(f"n{number:06d}" for number in range(count[0]))])
        await client.close()
        other = await connect(ports)
        assert await known(lambda: other.exists(f"{root}/alive")) is None
        await other.close()

    count = [0, 1 << 30]

    async def write(client: Client, root: str) -> None:
        while count[0] < count[1]:
            path = f"{root}/n{count[0]:06d}"
            try:
                await client.create(path)
            except NodeExistsError:
                pass  # an answer was lost
            except ConnectionLossError:
                continue
            count[0] += 1
            await asyncio.sleep(0.005)

    run(script())


def test_lease_in_an_ensemble_leaves_a_margin_and_stops_without_a_leader(ensemble: list[ApacheZooKeeper]) -> None:
    async def script() -> None:
        world = real_world()
        async with AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(TcpProxy("127.0.0.1", server.port)) for server in ensemble]
            client = await connect([proxy.port for proxy in proxies], timeout_ms=6000)
            margin_s = client.timeout_ms / 3000
            first_s = client.heard_s
            await until(lambda: client.heard_s > first_s)
            assert client.heard_s <= world.clock.monotonic() - margin_s
            for proxy in proxies:
                proxy.swallows_answers = True
            cut_s = world.clock.monotonic()
            await until(lambda: client.state is SessionState.SUSPENDED)
            assert client.heard_s <= cut_s - margin_s
            for proxy in proxies:
                proxy.heal()
                proxy.cut()
            await until(lambda: client.state is not SessionState.SUSPENDED)
            await client.close()

    run(script())
