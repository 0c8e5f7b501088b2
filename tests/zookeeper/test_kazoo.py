"""kazoo, the usual ZooKeeper client of Python, cannot tell the keeper from Apache ZooKeeper."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException
from kazoo.protocol.states import Callback, WatchedEvent
from kazoo.recipe.cache import TreeCache
from kazoo.recipe.watchers import ChildrenWatch, DataWatch
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from penstock.testing.zookeeper_processes import ApacheZooKeeper, KeeperProcess

pytestmark = pytest.mark.zookeeper

PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/c")
DEADLINE_S = 30.0


def connect(port: int, chroot: str = "", **options: Any) -> KazooClient:
    client = KazooClient(f"127.0.0.1:{port}{chroot}", timeout=5.0, **options)
    client.start(DEADLINE_S)
    return client


@pytest.fixture
def clients() -> Iterator[Callable[..., KazooClient]]:
    made: list[KazooClient] = []

    def make(port: int, chroot: str = "", **options: Any) -> KazooClient:
        made.append(connect(port, chroot, **options))
        return made[-1]

    yield make
    for client in made:
        client.stop()
        client.close()


def shown(value: Any) -> Any:
    """Without what is a server's own."""
    match value:
        case KazooException():
            return type(value)
        case tuple() if hasattr(value, "czxid"):
            stat: Any = value
            return stat.version, stat.cversion, stat.aversion, bool(stat.ephemeralOwner), stat.numChildren
        case tuple() if len(value) == 2:
            return shown(value[0]), shown(value[1])
        case list():
            return (
                sorted(shown(each) for each in value)
                if all(isinstance(each, str) for each in value)
                else [shown(each) for each in value]
            )
        case _:
            return value


def perform(client: KazooClient, draw: random.Random, events: list[WatchedEvent]) -> Any:
    path = draw.choice(PATHS)
    version = draw.choice([-1, -1, 0, 1])
    watch = events.append if draw.random() < 0.4 else None
    kind = draw.randrange(9)
    try:
        match kind:
            case 0 | 1:
                flags = {"ephemeral": draw.random() < 0.3, "sequence": draw.random() < 0.2}
                return shown(client.create(path, b"x", include_data=True, **flags))
            case 2:
                return client.delete(path, version)
            case 3:
                return shown(client.set(path, draw.randbytes(4), version))
            case 4:
                return shown(client.get(path, watch))
            case 5:
                return shown(client.exists(path, watch))
            case 6:
                return shown(client.get_children(path, watch, include_data=draw.random() < 0.5))
            case 7:
                return shown(client.get_acls(path))
            case _:
                transaction = client.transaction()
                for _ in range(draw.randrange(1, 4)):
                    place, number = draw.choice(PATHS), draw.randrange(4)
                    if number == 0:
                        transaction.create(place, b"y", ephemeral=draw.random() < 0.3)
                    elif number == 1:
                        transaction.delete(place)
                    elif number == 2:
                        transaction.set_data(place, b"z")
                    else:
                        transaction.check(place, 0)
                return shown(transaction.commit())
    except KazooException as error:
        return type(error)


def settled(client: KazooClient, events: list[WatchedEvent]) -> list[Any]:
    """The events so far: those that came before an answer have been told when a callback behind them runs."""
    passed = threading.Event()
    client.sync_async("/").rawlink(lambda _result: client.handler.dispatch_callback(_callback(passed.set)))
    assert passed.wait(DEADLINE_S)
    return sorted((event.type, event.path) for event in events)


def _callback(function: Callable[[], None]) -> Callback:
    return Callback("watch", function, ())


@pytest.mark.parametrize("seed", range(4))
def test_scripts_are_the_same(
    apache_zookeeper: ApacheZooKeeper,
    keeper_process: KeeperProcess,
    clients: Callable[..., KazooClient],
    seed: int,
    is_long: bool,
) -> None:
    stories: list[list[Any]] = []
    for port in (apache_zookeeper.port, keeper_process.port):
        root = f"/kazoo-{uuid.uuid4().hex}"
        clients(port).create(root)
        client = clients(port, root)
        draw, told = random.Random(seed), []
        for _ in range(1000 if is_long else 100):
            events: list[WatchedEvent] = []
            told.append(perform(client, draw, events))
            told.append(settled(client, events))
        stories.append(told)
    assert stories[0] == stories[1]


@pytest.fixture(params=["apache_zookeeper", "keeper_process"])
def server_port(request: pytest.FixtureRequest) -> int:
    port: int = request.getfixturevalue(request.param).port
    return port


def eventually(condition: Callable[[], bool], changed: threading.Condition) -> None:
    with changed:
        assert changed.wait_for(condition, DEADLINE_S)


def test_lock_and_election(server_port: int, clients: Callable[..., KazooClient]) -> None:
    root = f"/{uuid.uuid4().hex}"
    one, two = clients(server_port), clients(server_port)
    first, second = one.Lock(f"{root}/lock", "one"), two.Lock(f"{root}/lock", "two")
    assert first.acquire(timeout=DEADLINE_S)
    assert not second.acquire(blocking=False)
    assert one.Lock(f"{root}/lock").contenders()[0] == "one"
    got = threading.Event()
    waiting = threading.Thread(target=lambda: second.acquire(timeout=DEADLINE_S) and got.set())
    waiting.start()
    first.release()
    assert got.wait(DEADLINE_S)
    waiting.join()
    second.release()
    led: list[str] = []
    for client, name in ((one, "one"), (two, "two")):
        client.Election(f"{root}/election", name).run(led.append, name)
    assert led == ["one", "two"]


def test_lock_of_a_client_that_dies_is_given_on(server_port: int, clients: Callable[..., KazooClient]) -> None:
    root = f"/{uuid.uuid4().hex}"
    one, two = clients(server_port), clients(server_port)
    assert one.Lock(root, "one").acquire(timeout=DEADLINE_S)
    one.stop()
    assert two.Lock(root, "two").acquire(timeout=DEADLINE_S)


def test_watchers_and_cache(server_port: int, clients: Callable[..., KazooClient]) -> None:
    root = f"/{uuid.uuid4().hex}"
    client, other = clients(server_port), clients(server_port)
    client.ensure_path(f"{root}/x/y")
    changed = threading.Condition()
    data: list[bytes | None] = []
    names: list[list[str]] = []

    def on_data(value: bytes | None, _stat: Any) -> None:
        with changed:
            data.append(value)
            changed.notify_all()

    def on_children(children: list[str]) -> None:
        with changed:
            names.append(sorted(children))
            changed.notify_all()

    DataWatch(client, f"{root}/data", on_data)
    ChildrenWatch(client, root, on_children)
    cache = TreeCache(client, root)
    cache.listen(lambda _event: notify(changed))
    cache.start()
    other.create(f"{root}/data", b"1")
    eventually(lambda: data[-1:] == [b"1"] and names[-1:] == [["data", "x"]], changed)
    other.set(f"{root}/data", b"2")
    eventually(lambda: data[-1:] == [b"2"], changed)
    eventually(lambda: getattr(cache.get_data(f"{root}/data"), "data", b"") == b"2", changed)
    other.delete(root, recursive=True)
    eventually(lambda: data[-1:] == [None] and cache.get_data(f"{root}/data") is None, changed)
    cache.close()


def notify(changed: threading.Condition) -> None:
    with changed:
        changed.notify_all()


def test_digest_acl(server_port: int, clients: Callable[..., KazooClient]) -> None:
    path = f"/{uuid.uuid4().hex}"
    mine = clients(server_port, auth_data=[("digest", "me:secret")])
    other = clients(server_port)
    mine.create(path, b"x", acl=[make_digest_acl("me", "secret", all=True)])
    assert mine.get(path)[0] == b"x"
    with pytest.raises(KazooException):
        other.get(path)
    mine.set_acls(path, OPEN_ACL_UNSAFE)
    assert other.get(path)[0] == b"x"


def test_keeper_that_is_killed_and_started_again(tmp_path: Any, clients: Callable[..., KazooClient]) -> None:
    """The session, its ephemeral znode and its watches go on."""
    with KeeperProcess(tmp_path / "data") as keeper:
        client = clients(keeper.port, connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2))
        states: list[KazooState] = []
        changed = threading.Condition()

        def on_state(state: KazooState) -> None:
            with changed:
                states.append(state)
                changed.notify_all()

        client.add_listener(on_state)
        client.create("/e", ephemeral=True)
        session = client.client_id
        events: list[WatchedEvent] = []
        client.get("/e", lambda event: (events.append(event), notify(changed)))
        keeper.kill()
        keeper.start()
        eventually(lambda: KazooState.CONNECTED in states, changed)
        assert client.client_id == session
        assert KazooState.LOST not in states
        client.set("/e", b"new")
        eventually(lambda: len(events) == 1, changed)
