"""`penstock broker` as processes: the broker and its watcher end together, and the session with them."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcessError, free_port
from penstock.testing.cluster_processes import ClusterBroker, is_alive
from penstock.testing.raw_zookeeper import RawZooKeeper
from penstock.testing.zookeeper_processes import KeeperProcess
from penstock.zookeeper.protocol import Op, PathWatch

Command = Callable[..., Any]

#: Far longer than any test waits: nothing here happens because a session has expired.
LONG_SESSION = {"zookeeper.session.timeout.ms": "60000"}
ENDED_BY_KILL = 128 + signal.SIGKILL
DEADLINE_S = 20.0
CHROOT = "/penstock/test"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '--data'"),
        (["--data", "d"], "pass --id, a number that no other broker of the cluster has"),
        (["--data", "d", "--id", "-1"], "Invalid value for '--id'"),
        (["--data", "d", "--id", "1"], "where is ZooKeeper? pass --zookeeper"),
        (["--data", "d", "--id", "1", "--zookeeper", "a:b"], "zookeeper.connect: 'a:b' is not HOST:PORT"),
        (["--data", "d", "--id", "1", "--zookeeper", "a/x,b/x"], "the chroot comes once, after the last server"),
        (["--data", "d", "--id", "1", "--zookeeper", "a", "--listener", "9092"], "listeners: '9092' is not"),
        (["--data", "d", "--id", "1", "--zookeeper", "a", "--set", "x=1"], "x is not a setting"),
        (["--data", "d", "--id", "1", "--zookeeper", "a", "--set", "x"], "--set x: write it as KEY=VALUE"),
    ],
)
def test_wrong_usage_is_named(command: Command, arguments: list[str], message: str) -> None:
    outcome = command("broker", *arguments)
    assert outcome.code == 2
    assert message in outcome.err


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeeperProcess]:
    with KeeperProcess(tmp_path_factory.mktemp("keeper") / "data") as process:
        yield process


@pytest.fixture
def broker(keeper: KeeperProcess, tmp_path: Path) -> Iterator[ClusterBroker]:
    """One broker, alone in its cluster."""
    zookeeper = f"{keeper.address}{CHROOT}-{tmp_path.name}"
    with ClusterBroker(1, tmp_path / "data", zookeeper, settings=LONG_SESSION) as process:
        yield process


def is_registered(broker: ClusterBroker) -> bool:
    address, _, chroot = broker.zookeeper.partition("/")
    with RawZooKeeper(int(address.rpartition(":")[2])) as client:
        client.connect()
        path = f"/{chroot}/brokers/ids/{broker.broker_id}"
        return client.ask(Op.EXISTS, PathWatch(path, False)).header.error == 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it does not happen"
        time.sleep(0.01)


def start_beside(broker: ClusterBroker, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Another `penstock broker` that should not come up."""
    options = {"port": free_port(), "data": broker.data, "broker_id": broker.broker_id, **changes}
    other = ClusterBroker(
        options["broker_id"],
        options["data"],
        options.get("zookeeper", broker.zookeeper),
        port=options["port"],
        settings={"zookeeper.session.timeout.ms": "1000", **options.get("settings", {})},
    )
    return subprocess.run(other.command(), capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.cluster
def test_the_watcher_ends_the_session_of_a_killed_broker(broker: ClusterBroker) -> None:
    assert is_registered(broker)
    file = broker.data / "session"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: not is_registered(broker))
    assert broker.wait_for_end() == ENDED_BY_KILL
    broker.start()
    assert is_registered(broker)
    broker.stop()
    assert not is_registered(broker)


@pytest.mark.cluster
def test_the_broker_ends_with_its_watcher_and_a_restart_finds_no_leftover(broker: ClusterBroker) -> None:
    broker.kill_watcher()
    broker.start()
    assert is_registered(broker)
    assert "the watcher of this broker has gone" in broker.log_text()


@pytest.mark.cluster
def test_a_restart_ends_what_nobody_could_end(broker: ClusterBroker) -> None:
    pid = broker.pid
    broker.pause()  # it cannot notice
    os.kill(broker.watcher_pid, signal.SIGKILL)
    broker.wait_for_end()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    assert is_registered(broker)  # a session that nobody has ended
    broker.start()
    assert "ended the session that the last run left" in broker.log_text()


@pytest.mark.cluster
def test_ctrl_c_in_a_terminal_stops_both(keeper: KeeperProcess, tmp_path: Path) -> None:
    broker = ClusterBroker(1, tmp_path / "data", f"{keeper.address}/ctrl-c", port=free_port(), settings=LONG_SESSION)
    process = subprocess.Popen(
        broker.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("penstock ready kafka=")
    os.killpg(process.pid, signal.SIGINT)
    _, log = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert "Traceback" not in log
    assert not is_registered(broker)


@pytest.mark.cluster
def test_a_second_signal_ends_both_at_once(broker: ClusterBroker) -> None:
    pid = broker.pid
    broker.pause()  # so it does not stop by itself
    os.kill(broker.watcher_pid, signal.SIGTERM)
    os.kill(broker.watcher_pid, signal.SIGINT)
    assert broker.wait_for_end() == ENDED_BY_KILL
    assert not is_alive(pid)
    assert not is_registered(broker)


@pytest.mark.cluster
def test_a_broker_that_fails_gives_its_exit_code(broker: ClusterBroker) -> None:
    taken = start_beside(broker, broker_id=2, port=broker.port, data=broker.data.with_name("other"))
    assert taken.returncode == 1
    assert f"penstock: cannot listen on 127.0.0.1:{broker.port}: " in taken.stderr
    assert "Traceback" not in taken.stderr


@pytest.mark.cluster
def test_one_folder_is_for_one_broker(broker: ClusterBroker) -> None:
    twice = start_beside(broker)
    assert twice.returncode == 1
    assert f"{broker.data} is in use by another process" in twice.stderr
    assert is_registered(broker)
    other_id = broker.data.with_name("copied")
    broker.stop()
    broker.data.rename(other_id)
    foreign = start_beside(broker, broker_id=2, data=other_id)
    assert foreign.returncode == 1
    assert "belongs to broker 1, this is broker 2" in foreign.stderr


@pytest.mark.cluster
def test_one_id_is_for_one_broker(broker: ClusterBroker) -> None:
    twice = start_beside(broker, data=broker.data.with_name("other"))
    assert twice.returncode == 1
    assert "a broker with the id 1 is running already" in twice.stderr
    assert is_registered(broker)


@pytest.mark.cluster
def test_without_zookeeper_it_says_so_and_can_be_stopped(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}/x"
    settings = {"zookeeper.connection.timeout.ms": "300"}
    broker = ClusterBroker(1, tmp_path / "data", nowhere, port=free_port(), settings=settings)
    with pytest.raises(BrokerProcessError, match=f"ZooKeeper at {nowhere} did not answer within 300 ms"):
        broker.start()
    waiting = ClusterBroker(1, tmp_path / "data", nowhere, port=free_port())
    process = subprocess.Popen(waiting.command(), stderr=subprocess.PIPE)
    wait_until(lambda: _holds_lock(tmp_path / "data"))
    process.terminate()
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def _holds_lock(folder: Path) -> bool:
    return any(
        str((folder / "lock").stat().st_ino) in line.split()[5] for line in Path("/proc/locks").read_text().splitlines()
    )


@pytest.mark.cluster
def test_whoever_is_no_zookeeper_is_not_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = {"zookeeper.connection.timeout.ms": "300"}
        broker = ClusterBroker(1, tmp_path / "data", address, port=free_port(), settings=settings)
        with pytest.raises(BrokerProcessError, match="did not answer within 300 ms"):
            broker.start()


@pytest.mark.cluster
def test_after_a_long_pause_it_registers_again(keeper: KeeperProcess, tmp_path: Path) -> None:
    settings = {"zookeeper.session.timeout.ms": "1000"}
    with ClusterBroker(1, tmp_path / "data", f"{keeper.address}/pause", settings=settings) as broker:
        before = (broker.data / "session").read_bytes()
        broker.pause()
        wait_until(lambda: not is_registered(broker))
        broker.resume()
        wait_until(lambda: is_registered(broker))
        assert (broker.data / "session").read_bytes() != before
        broker.kill()
        assert not is_registered(broker)


@pytest.mark.cluster
def test_the_password_of_the_session_is_in_no_log(broker: ClusterBroker, keeper: KeeperProcess) -> None:
    password = (broker.data / "session").read_text().partition('"password": "')[2].partition('"')[0]
    assert len(password) == 32
    broker.stop()
    for log in (broker.log_text(), keeper.log_text()):
        assert password not in log


@pytest.mark.cluster
def test_the_watcher_is_small(broker: ClusterBroker) -> None:
    """What it would cost to import the client of the brokers, or asyncio, would show here at once."""
    loaded = f"import sys; sys.argv = ['watch']; import penstock.cli.watch; print(sorted(sys.modules))"  # noqa: F541
    modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout
    for heavy in ("'asyncio'", "'msgspec'", "'logging'", "'typer'", "'uvloop'", "'ssl'"):
        assert heavy not in modules
    dirty_kb = _private_dirty_kb(broker.watcher_pid)
    assert dirty_kb < 10_000, f"the watcher has {dirty_kb} kB of its own"


def _private_dirty_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))
