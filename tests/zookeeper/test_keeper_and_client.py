"""The keeper and our client over the simulated network and disk: crashes, cuts, sessions, watches, the lease."""

from __future__ import annotations

import asyncio
import random

import pytest

from penstock.testing.sim_keeper import ADDRESS, HOST, SimKeeper
from penstock.zookeeper import operations as ops
from penstock.zookeeper.client import Client
from penstock.zookeeper.coordination import SessionState
from penstock.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLossError,
    CoordinationError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    StorageFullError,
)
from penstock.zookeeper.keeper import KeeperLimits
from penstock.zookeeper.operations import Acl, EventType, Identity, WatchEvent
from penstock.zookeeper.session import Session

TIMEOUT_MS = 6000
TIMEOUT_S = TIMEOUT_MS / 1000


def test_everything_a_coordination_offers() -> None:
    async def script() -> None:
        client = await service.client("one")

        async def work() -> None:
            assert await client.create("/a", b"1") == "/a"
            assert await client.create("/a/s-", sequential=True) == "/a/s-0000000000"
            assert await client.exists("/none") is None
            data, stat = await client.get("/a")
            assert (data, stat.version, stat.num_children) == (b"1", 0, 1)
            assert (await client.set("/a", b"2", 0)).version == 1
            with pytest.raises(BadVersionError):
                await client.set("/a", b"3", 0)
            with pytest.raises(NodeExistsError):
                await client.create("/a")
            assert (await client.children("/a"))[0] == ["s-0000000000"]
            results = await client.multi(
                [ops.Check("/a", 1), ops.Create("/b"), ops.SetData("/b", b"x"), ops.Delete("/b")]
            )
            assert [type(result) for result in results] == [ops.Done, ops.Created, ops.Changed, ops.Done]
            with pytest.raises(NoNodeError) as failure:
                await client.multi([ops.Create("/c"), ops.Delete("/none"), ops.Create("/d")])
            assert failure.value.operation_index == 1
            assert await client.exists("/c") is None
            await client.delete("/a/s-0000000000")
            await client.sync()
            for bad in ("a", "/a/", "/a//b", "/\0", ""):
                with pytest.raises(BadArgumentsError):
                    await client.get(bad)
            with pytest.raises(BadArgumentsError):
                await client.set("/a", bytes(1 << 20))
            with pytest.raises(BadArgumentsError):
                await client.multi([ops.SetAcl("/a", ops.OPEN_ACL)])
            await client.close()
            assert client.state is SessionState.CLOSED
            with pytest.raises(SessionExpiredError):
                await client.get("/a")

        await service.within("one", work())

    with SimKeeper() as service:
        service.run(script())


def test_chroot_hides_what_is_above_it() -> None:
    async def script() -> None:
        plain = await service.client("one")
        below = await service.client("two", chroot="/deep/er/")
        for _ in range(2):
            await service.within("two", below.make_chroot())
        events: list[WatchEvent] = []

        async def work() -> None:
            assert await below.exists("/a", events.append) is None
            assert await below.create("/a") == "/a"
            assert await below.create("/a/s", sequential=True) == "/a/s0000000000"
            assert (await below.children("/"))[0] == ["a"]
            results = await below.multi([ops.Create("/m-", sequential=True), ops.Delete("/a/s0000000000")])
            assert results == [ops.Created("/m-0000000001"), ops.Done()]

        await service.within("two", work())
        assert events == [WatchEvent(EventType.CREATED, "/a")]
        assert (await service.within("one", plain.children("/deep/er")))[0] == ["a", "m-0000000001"]

    with SimKeeper() as service:
        service.run(script())


def test_who_we_are_comes_again_with_each_connection() -> None:
    mine = (Acl(ops.ALL_PERMISSIONS, Identity("auth", "")),)

    async def script() -> None:
        client = await service.client("one", digest=b"me:secret")
        other = await service.client("two")
        await service.within("one", client.create("/mine", b"x", acl=mine))
        with pytest.raises(NoAuthError):
            await service.within("two", other.get("/mine"))
        lost = service.losing(client)
        service.simulation.network.reset("one", HOST)
        await lost
        assert (await service.within("one", client.get("/mine")))[0] == b"x"

    with SimKeeper() as service:
        service.run(script())


def test_session_ends_when_its_client_is_silent_and_not_before() -> None:
    async def script() -> None:
        one, two = await service.client("one"), await service.client("two")
        states: list[SessionState] = []
        one.add_listener(states.append)
        await service.within("one", one.create("/e", ephemeral=True))
        await asyncio.sleep(5 * TIMEOUT_S)
        assert await service.within("two", two.exists("/e")) is not None
        gone: list[WatchEvent] = []
        await service.within("two", two.exists("/e", gone.append))
        service.simulation.network.links.cut_both("one", HOST)
        cut_s = service.simulation.loop.time()
        await service.until(lambda: bool(gone))
        silent_s = service.simulation.loop.time() - cut_s
        assert TIMEOUT_S * 5 / 6 - 0.1 <= silent_s <= TIMEOUT_S + 0.5
        assert one.heard_s + TIMEOUT_S <= service.simulation.loop.time()
        service.simulation.network.links.heal_all()
        await service.until(lambda: one.state is SessionState.EXPIRED)
        assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
        with pytest.raises(SessionExpiredError):
            await service.within("one", one.create("/x"))

    with SimKeeper() as service:
        service.run(script())


def test_session_goes_on_over_connections_and_crashes_of_the_keeper() -> None:
    async def script() -> None:
        client = await service.client("one")
        session_id = client.session_id
        await service.within("one", client.create("/e", ephemeral=True))
        for way in range(6):
            lost = service.losing(client)
            if way % 3 == 0:
                service.simulation.network.reset("one", HOST)
            elif way % 3 == 1:
                service.kill()
                service.start()
            else:
                service.crash()
            await lost
            stat = await service.within("one", client.exists("/e"))
            assert stat is not None and stat.ephemeral_owner == session_id == client.session_id

    with SimKeeper() as service:
        service.run(script())


def test_session_moves_with_its_password_and_not_without() -> None:
    async def script() -> None:
        one = await service.client("one")
        await service.within("one", one.create("/e", ephemeral=True))
        with pytest.raises(SessionExpiredError):
            await service.client("thief", session=Session(one.session_id, bytes(16)))
        with pytest.raises(SessionExpiredError):
            await service.client("thief", session=Session(one.session_id, b""))
        assert one.state is SessionState.CONNECTED
        lost = service.losing(one)
        one.add_listener(lambda _state: service.process("one").kill())
        watcher = await service.client("two", session=one.session)
        await lost
        assert watcher.session_id == one.session_id
        await service.within("two", watcher.close())
        three = await service.client("three")
        assert await service.within("three", three.exists("/e")) is None
        with pytest.raises(SessionExpiredError):
            await service.client("two", session=one.session)

    with SimKeeper() as service:
        service.run(script())


def test_nobody_takes_over_a_session_of_the_keepers_own_process() -> None:
    async def script() -> None:
        first = await service.client("one")
        assert service.keeper is not None
        local_id = await service._process.start(service.keeper.store.open_session(6000))  # type: ignore[union-attr]
        for password in (b"", bytes(16)):
            with pytest.raises(SessionExpiredError):
                await service.client("thief", session=Session(local_id, password))
        await asyncio.sleep(10 * TIMEOUT_S)
        assert local_id in service.keeper.store.tree.sessions
        assert first.state is SessionState.CONNECTED

    with SimKeeper() as service:
        service.run(script())


def test_client_that_vanishes_while_its_session_begins_leaves_none_behind() -> None:
    async def script() -> None:
        await service.until(lambda: service.keeper is not None)
        assert service.keeper is not None
        sessions = service.keeper.store.tree.sessions
        for _ in range(20):
            process = service.simulation.machine("one").process("short")
            process.start(Client.connect(process.world, [ADDRESS], timeout_ms=1000)).add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )
            await asyncio.sleep(service.simulation.random.random() * 0.01)
            process.kill()
        await asyncio.sleep(0.1)
        assert sessions
        await asyncio.sleep(2)
        assert not sessions

    with SimKeeper(sync_s=(0.005, 0.01)) as service:
        service.run(script())


@pytest.mark.parametrize("seed", range(4))
def test_lost_answer_leaves_the_state_to_be_read_again(seed: int) -> None:
    """Cut one way at a random moment: the request fails as unknown, and what is there is one of the two."""

    async def script() -> None:
        client = await service.client("one")
        draw = random.Random(seed)
        unknown = 0
        for number in range(12):
            path = f"/n{number}"
            making = asyncio.ensure_future(service.outcome(service.within("one", client.create(path))))
            await asyncio.sleep(draw.random() * 0.004)
            ways = [("one", HOST), (HOST, "one")]
            service.simulation.network.links.cut(*draw.choice(ways))
            await asyncio.sleep(draw.random() * 5)
            service.simulation.network.reset("one", HOST)
            service.simulation.network.links.heal_all()
            outcome = await making
            stat: object = ConnectionLossError()
            while isinstance(stat, ConnectionLossError):
                stat = await service.outcome(service.within("one", client.exists(path)))
            if isinstance(outcome, Exception):
                assert isinstance(outcome, ConnectionLossError) and not outcome.definite
                unknown += 1
            else:
                assert outcome == path and stat is not None
        assert unknown

    with SimKeeper(seed) as service:
        service.run(script())


@pytest.mark.parametrize("seed", range(3))
def test_client_has_seen_nothing_that_a_crash_can_undo(seed: int) -> None:
    """While others write: or the keeper would refuse it for ever, as one from the future."""

    async def busy(client: Client, path: str) -> None:
        await client.create(path)
        while True:
            await service.outcome(client.set(path, b"x"))

    async def script() -> None:
        clients = {name: await service.client(name) for name in ("a", "b", "c")}
        working = [service.process(name).start(busy(client, f"/{name}")) for name, client in clients.items()]
        for _ in range(6):
            await asyncio.sleep(0.3 + service.simulation.random.random() * 0.1)
            newest_zxid = max(client._session._last_zxid for client in clients.values())
            service.keeper = None
            service.crash()
            await service.until(lambda: service.keeper is not None)
            assert service.keeper is not None
            assert newest_zxid <= service.keeper.store.tree.last_zxid
            for client in clients.values():
                await service.until(lambda client=client: client.state is SessionState.CONNECTED)
        for each in working:
            each.cancel()

    with SimKeeper(seed, sync_s=(0.01, 0.02)) as service:
        service.run(script())


def test_request_without_a_connection_waits_for_one() -> None:
    async def script() -> None:
        client = await service.client("one")
        lost = service.losing(client)
        service.kill()
        await lost
        making = service.process("one").start(client.create("/later"))
        await asyncio.sleep(1)
        assert not making.done()
        service.start()
        assert await making == "/later"

    with SimKeeper() as service:
        service.run(script())


def test_watches_survive_the_connection_and_tell_what_was_missed() -> None:
    async def script() -> None:
        one, two = await service.client("one"), await service.client("two", timeout_ms=20_000)
        events: list[WatchEvent] = []

        async def leave() -> None:
            for path in ("/changed", "/gone", "/parent", "/same"):
                await one.create(path)
                await one.get(path, events.append)
            await one.children("/parent", events.append)
            await one.exists("/born", events.append)

        await service.within("one", leave())
        service.simulation.network.links.cut_both("one", HOST)

        async def change() -> None:
            await two.set("/changed", b"new")
            await two.delete("/gone")
            await two.create("/parent/child")
            await two.create("/born")

        await service.within("two", change())
        await asyncio.sleep(1)
        assert not events
        service.simulation.network.links.heal_all()
        service.simulation.network.reset("one", HOST)
        await service.until(lambda: len(events) == 4)
        assert set(events) == {
            WatchEvent(EventType.DATA_CHANGED, "/changed"),
            WatchEvent(EventType.DELETED, "/gone"),
            WatchEvent(EventType.CHILDREN_CHANGED, "/parent"),
            WatchEvent(EventType.CREATED, "/born"),
        }
        await service.within("two", two.set("/same", b"new"))
        await service.within("two", two.set("/parent", b"new"))
        await service.until(lambda: len(events) == 6)

    with SimKeeper() as service:
        service.run(script())


def test_very_many_watches_are_set_again_in_parts() -> None:
    count = 1500

    async def script() -> None:
        one, two = await service.client("one"), await service.client("two")
        events: list[WatchEvent] = []

        async def leave() -> None:
            for number in range(count):
                await one.exists(f"/{'x' * 200}{number}", events.append)

        await service.within("one", leave())
        lost = service.losing(one)
        service.simulation.network.reset("one", HOST)
        await lost
        await service.within("one", one.sync())
        for number in (0, count - 1):
            await service.within("two", two.create(f"/{'x' * 200}{number}"))
        await service.until(lambda: len(events) == 2)

    with SimKeeper() as service:
        service.run(script())


@pytest.mark.parametrize("seed", range(8))
def test_nothing_that_was_answered_is_lost_and_watches_miss_nothing(seed: int) -> None:
    """Writers and a watcher among crashes, kills and resets; the watcher must end with the newest value."""

    async def writer(client: Client, name: str, draw: random.Random, known: dict[str, tuple[int, set[bytes]]]) -> None:
        version = -1
        for number in range(40):
            value = f"{name} {number}".encode()
            try:
                if version < 0:
                    await client.create(f"/{name}", value)
                    version = 0
                else:
                    version = (await client.set(f"/{name}", value, version)).version
                known[name] = (version, {value})
            except ConnectionLossError:
                known[name] = (known[name][0], known[name][1] | {value}) if name in known else (-1, {value})
                stat = await reading(client, name)
                version = -1 if stat is None else stat
            except CoordinationError:
                raise
            await asyncio.sleep(draw.random() * 0.05)

    async def reading(client: Client, name: str) -> int | None:
        while True:
            try:
                stat = await client.exists(f"/{name}")
                return None if stat is None else stat.version
            except ConnectionLossError:
                continue

    async def watcher(client: Client, seen: dict[str, tuple[bytes, int]], changed: asyncio.Event) -> None:
        """Read again whenever a watch says so; never by a clock."""
        waiting: set[str] = {"a", "b"}

        def on_event(event: WatchEvent) -> None:
            waiting.add(event.path[1:])
            changed.set()

        while True:
            while waiting:
                name = waiting.pop()
                try:
                    if await client.exists(f"/{name}", on_event) is not None:
                        data, stat = await client.get(f"/{name}", on_event)
                        assert stat.version >= seen.get(name, (b"", -1))[1], "time does not run backwards"
                        seen[name] = data, stat.version
                except (ConnectionLossError, NoNodeError):
                    waiting.add(name)
            changed.clear()
            await changed.wait()

    async def script() -> None:
        draw = random.Random(seed)
        clients = {name: await service.client(name) for name in ("a", "b", "w")}
        known: dict[str, tuple[int, set[bytes]]] = {}
        seen: dict[str, tuple[bytes, int]] = {}
        changed = asyncio.Event()
        watching = service.process("w").start(watcher(clients["w"], seen, changed))
        writing = [service.process(name).start(writer(clients[name], name, draw, known)) for name in ("a", "b")]
        while not all(each.done() for each in writing):
            await asyncio.sleep(draw.random() * 0.6)
            match draw.randrange(4):
                case 0:
                    service.crash(draw.choice(["all", "none"]))
                case 1:
                    service.kill()
                    service.start()
                case _:
                    service.simulation.network.reset(draw.choice(["a", "b", "w"]), HOST)
        for each in writing:
            await each
        reader = await service.client("reader")
        for name in ("a", "b"):
            data, stat = await service.within("reader", reader.get(f"/{name}"))
            version, values = known[name]
            assert stat.version >= version
            assert data in values
            await service.until(lambda name=name, now=(data, stat.version): seen.get(name) == now)
        watching.cancel()

    with SimKeeper(seed, journal_size_bytes=2000) as service:
        service.run(script())


@pytest.mark.parametrize("seed", range(8))
def test_lease_never_says_more_than_the_keeper_has_heard(seed: int) -> None:
    async def script() -> None:
        client = await service.client("one")
        draw = random.Random(seed)
        links = service.simulation.network.links
        for _ in range(60):
            await asyncio.sleep(draw.random())
            match draw.randrange(8):
                case 0:
                    links.cut("one", HOST)
                case 1:
                    links.cut(HOST, "one")
                case 2:
                    service.simulation.network.reset("one", HOST)
                case 3:
                    links.set_delay("one", HOST, 0.0001, draw.random())
                    links.set_delay(HOST, "one", 0.0001, draw.random())
                case 4:
                    service.crash()
                    await asyncio.sleep(0.1)
                case _:
                    links.heal_all()
            assert service.keeper is not None
            deadline_s = service.keeper._deadlines_s.get(client.session_id)
            is_over = client.session_id not in service.keeper.store.tree.sessions
            now_s = service.simulation.loop.time()
            lease_s = client.heard_s + client.timeout_ms / 1000
            assert lease_s <= (now_s if is_over else deadline_s or 0.0)
            if is_over:
                return

    with SimKeeper(seed) as service:
        service.run(script())


def test_events_stand_between_the_answers_around_them() -> None:
    """A watch is known before it fires, also when read, write and answer share one sync of the disk."""

    async def script() -> None:
        client = await service.client("one")

        async def work() -> None:
            await client.create("/a")
            for number in range(200):
                events: list[WatchEvent] = []
                order: list[str] = []

                async def ask(what: object, name: str, order: list[str] = order) -> None:
                    await what  # type: ignore[misc]
                    order.append(name)

                def on_event(event: WatchEvent, events: list[WatchEvent] = events, order: list[str] = order) -> None:
                    events.append(event)
                    order.append("event")

                await asyncio.gather(
                    ask(client.multi([ops.Create(f"/m{number}")]), "multi"),
                    ask(client.get("/a", on_event), "get"),
                    ask(client.set("/a", b"x"), "set"),
                    ask(client.get("/a"), "again"),
                )
                assert events == [WatchEvent(EventType.DATA_CHANGED, "/a")]
                assert order == ["multi", "get", "event", "set", "again"]

        await service.within("one", work())

    with SimKeeper() as service:
        service.run(script())


def test_containers_go_after_their_last_child() -> None:
    async def script() -> None:
        client = await service.client("one")

        async def work() -> None:
            for path in ("/never-used", "/used"):
                await client.multi([ops.Create(path, container=True)])
            await client.create("/used/child")
            await asyncio.sleep(5)
            assert await client.exists("/used") is not None
            gone: list[WatchEvent] = []
            await client.exists("/used", gone.append)
            await client.delete("/used/child")
            await asyncio.sleep(5)
            assert gone == [WatchEvent(EventType.DELETED, "/used")]
            assert await client.exists("/never-used") is not None

        await service.within("one", work())
        lost = service.losing(client)
        service.crash()
        await lost
        assert (await service.within("one", client.children("/")))[0] == ["never-used"]

    with SimKeeper(limits=KeeperLimits(container_check_ms=1000)) as service:
        service.run(script())


def test_full_disk_refuses_changes_and_goes_on_when_there_is_room() -> None:
    async def script() -> None:
        one, two = await service.client("one"), await service.client("two", timeout_ms=1000)
        await service.within("one", one.create("/a", b"old"))
        await service.within("two", two.create("/e", ephemeral=True))
        disk = service.machine.disk
        disk.set_capacity(disk.device.used_bytes)
        events: list[WatchEvent] = []
        await service.within("one", one.get("/a", events.append))
        for change in (one.set("/a", b"new"), one.create("/b"), one.multi([ops.Delete("/a")])):
            with pytest.raises(StorageFullError):
                await service.within("one", change)
        assert (await service.within("one", one.get("/a")))[0] == b"old"
        assert not events
        service.process("two").kill()
        await asyncio.sleep(3)
        assert await service.within("one", one.exists("/e")) is not None
        disk.set_capacity(1 << 30)
        await service.within("one", one.set("/a", b"new"))
        assert events == [WatchEvent(EventType.DATA_CHANGED, "/a")]
        await asyncio.sleep(3)
        assert await service.within("one", one.exists("/e")) is None
        assert one.state is SessionState.CONNECTED

    with SimKeeper() as service:
        service.run(script())


def test_keeper_whose_disk_fails_lets_go_of_its_clients() -> None:
    async def script() -> None:
        client = await service.client("one")
        await service.within("one", client.create("/a"))
        service.machine.disk.fail_sync()
        with pytest.raises(ConnectionLossError):
            await service.within("one", client.set("/a", b"x"))
        await asyncio.sleep(2)
        assert client.state is SessionState.SUSPENDED
        assert service.keeper is not None and service.keeper.store.failure is not None
        service.kill()
        service.start()
        assert await service.within("one", client.exists("/a")) is not None

    with SimKeeper() as service:
        service.run(script())
