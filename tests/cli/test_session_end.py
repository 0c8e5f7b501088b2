"""The end of a session that its watcher asks for: at our keeper, at Apache ZooKeeper, and where nobody answers."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.session_end import end_session, end_session_of, read_session
from penstock.testing.broker_process import free_port
from penstock.testing.raw_zookeeper import RawZooKeeper
from penstock.testing.zookeeper_processes import (
    ApacheZooKeeper,
    KeeperProcess,
    NoApacheZooKeeper,
    require_zookeeper,
    zookeeper_ensemble,
)
from penstock.zookeeper.operations import OPEN_ACL
from penstock.zookeeper.protocol import CreateRequest, Op, PathWatch
from penstock.zookeeper.session import LOCK_FILE, SESSION_FILE, Session, encode_session

NO_NODE = -101
EPHEMERAL = 1


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeeperProcess]:
    with KeeperProcess(tmp_path_factory.mktemp("keeper") / "data") as process:
        yield process


def _ends_a_session(ports: list[int]) -> None:
    """A client with an ephemeral znode goes away without a word; the end of its session removes the znode at once."""
    with RawZooKeeper(ports[0]) as client:
        begun = client.connect(timeout_ms=30_000)
        assert client.ask(Op.CREATE, CreateRequest("/mine", b"", OPEN_ACL, EPHEMERAL)).header.error == 0
    session = Session(begun.session_id, begun.password)
    servers = [("127.0.0.1", port) for port in ports]
    for server in servers:  # each knows the session; the second time it is over already
        assert end_session([server], session, timeout_ms=30_000, tries_s=20)
    with RawZooKeeper(ports[-1]) as client:
        client.connect()
        client.ask(Op.SYNC, PathWatch("/mine", False)) if len(ports) > 1 else None
        assert client.ask(Op.EXISTS, PathWatch("/mine", False)).header.error == NO_NODE


def test_at_the_keeper(keeper: KeeperProcess) -> None:
    _ends_a_session([keeper.port])


@pytest.mark.zookeeper
def test_at_apache_zookeeper(tmp_path: Path) -> None:
    _require_zookeeper()
    with ApacheZooKeeper(tmp_path / "zookeeper") as server:
        _ends_a_session([server.port])


@pytest.mark.zookeeper
def test_at_an_ensemble_of_apache_zookeeper(tmp_path: Path) -> None:
    _require_zookeeper()
    with zookeeper_ensemble(tmp_path / "ensemble") as servers:
        _ends_a_session([server.port for server in servers])


def _require_zookeeper() -> None:
    try:
        require_zookeeper()
    except NoApacheZooKeeper as missing:
        pytest.skip(f"NOT TESTED AGAINST APACHE ZOOKEEPER: {missing}")


def test_the_next_server_is_asked_where_one_does_not_answer(keeper: KeeperProcess) -> None:
    with RawZooKeeper(keeper.port) as client:
        begun = client.connect(timeout_ms=30_000)
        session = Session(begun.session_id, begun.password)
        servers = [("127.0.0.1", free_port()), ("127.0.0.1", keeper.port)]
        assert end_session(servers, session, timeout_ms=30_000, tries_s=20)
        assert client.has_ended()


@pytest.mark.parametrize(
    "answer",
    [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x7f\xff\xff\xff", b"\0\0\0\x04abcd", b"\xff\xff\xff\xff"],
    ids=["nobody", "closed", "http", "huge", "short", "negative"],
)
def test_whoever_is_no_zookeeper_has_ended_nothing(answer: bytes | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = listening.getsockname()[:2]
        if answer is None:
            listening.close()
        else:
            threading.Thread(target=_answer_all, args=(listening, answer), daemon=True).start()
        assert not end_session([server], Session(1, bytes(16)), timeout_ms=1000, tries_s=0.2)


def _answer_all(listening: socket.socket, answer: bytes) -> None:
    try:
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)
    except OSError:
        pass


def test_a_session_is_read_only_where_no_broker_has_the_folder(tmp_path: Path) -> None:
    session = Session(7, bytes(range(16)))
    folder = str(tmp_path)
    assert read_session(f"{folder}/missing") is None
    (tmp_path / SESSION_FILE).write_bytes(encode_session(session))
    assert read_session(folder) is None  # no broker was ever there
    (tmp_path / LOCK_FILE).touch()
    assert read_session(folder) == session
    lock = os.open(tmp_path / LOCK_FILE, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert read_session(folder) is None
    assert end_session_of(folder, [("127.0.0.1", free_port())], timeout_ms=1000, tries_s=0.1)  # nothing to do
    os.close(lock)
    assert read_session(folder) == session
    assert not end_session_of(folder, [("127.0.0.1", free_port())], timeout_ms=1000, tries_s=0.1)
    (tmp_path / SESSION_FILE).write_bytes(b"rubbish")
    assert read_session(folder) is None
