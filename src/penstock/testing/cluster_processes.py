"""A cluster of real broker processes, for tests: kill one, pause it, bring it back, in the two ways that users have.

    with ClusterProcesses(3, tmp_path / "cluster") as cluster:       # three times `penstock broker`, and a keeper
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(1)
        cluster.restart(1)

    with UpCluster(3, tmp_path / "data") as cluster:                 # `penstock up --brokers 3`
        cluster.kill(1)
        cluster.wait_ready()                                         # it comes back by itself

Brokers are numbered from 0 and keep their ports. `kill`, `pause` and `pid` mean the process of the broker, and
not that of its watcher.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.broker_process import STOP_TIMEOUT_S, BrokerProcess, BrokerProcessError
from penstock.testing.raw_client import ConnectionEnded, RawClient
from penstock.testing.zookeeper_processes import KeeperProcess
from penstock.wire.messages.k60_describe_cluster import DescribeClusterRequest

READY_TIMEOUT_S = 60.0
POLL_S = 0.02
SESSION_TIMEOUT_MS = 6000

#: What `penstock up` takes of its own accord with so many brokers, and a quick first rebalance.
_LAPTOP = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}


def replication_settings(count: int) -> dict[str, str]:
    """Three replicas of everything, and two in sync, where there are so many brokers."""
    replicas, in_sync = str(min(3, count)), "2" if count >= 3 else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }


class ClusterBroker(BrokerProcess):
    """`penstock broker`: one broker of a cluster, and its watcher."""

    def __init__(
        self,
        broker_id: int,
        data: Path,
        zookeeper: str,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data, port=port, host=host, settings=settings)
        self.broker_id = broker_id
        self.zookeeper = zookeeper

    def command(self) -> list[str]:
        program = super().command()[:3]
        options = ["--id", str(self.broker_id), "--zookeeper", self.zookeeper, "--data", str(self.data)]
        if "listeners" not in self.settings:
            options += ["--listener", f"PLAINTEXT://{self.host}:{self.port}"]
        for name, value in self.settings.items():
            options += ["--set", f"{name}={value}"]
        return [*program, "broker", *options]

    @property
    def pid(self) -> int:
        """The process that serves."""
        self._running()
        return _serving_processes(self.log_text(), "")[-1]

    @property
    def watcher_pid(self) -> int:
        return self._running().pid

    def kill(self) -> None:
        """End the broker at once (SIGKILL); its watcher ends its session, and then itself."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_for_end()

    def kill_watcher(self) -> None:
        """End the watcher at once (SIGKILL), and wait until the broker has followed."""
        pid = self.pid
        self._running().kill()
        self.wait_for_end()
        _wait_until(lambda: not is_alive(pid), f"broker {self.broker_id} outlives its watcher", STOP_TIMEOUT_S)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        with suppress(BrokerProcessError, ProcessLookupError, IndexError):
            os.kill(self.pid, signal.SIGCONT)


class ClusterProcesses:
    """So many brokers, each a `penstock broker`, on the ZooKeeper at `zookeeper`, or with a keeper of their own.

    `settings` are those of all; `own_settings` of single brokers, by their ids.
    """

    def __init__(
        self,
        count: int,
        data: Path,
        *,
        zookeeper: str | None = None,
        settings: Mapping[str, str] | None = None,
        own_settings: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self.data = data
        self.keeper = KeeperProcess(data / "keeper") if zookeeper is None else None
        self.zookeeper = zookeeper if self.keeper is None else self.keeper.address
        self._settings = {**_LAPTOP, **replication_settings(count), **(settings or {})}
        self.brokers: dict[int, ClusterBroker] = {}
        for broker_id in range(count):
            self.add(broker_id, (own_settings or {}).get(broker_id))

    def add(self, broker_id: int, settings: Mapping[str, str] | None = None) -> ClusterBroker:
        """One more broker, not started yet."""
        folder, merged = self.data / f"broker-{broker_id}", {**self._settings, **(settings or {})}
        broker = ClusterBroker(broker_id, folder, self.zookeeper or "", settings=merged)
        self.brokers[broker_id] = broker
        return broker

    def __getitem__(self, broker_id: int) -> ClusterBroker:
        return self.brokers[broker_id]

    def __iter__(self) -> Iterator[ClusterBroker]:
        return iter(self.brokers.values())

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers that were started, for clients."""
        return ",".join(broker.bootstrap for broker in self if broker.addresses)

    def start(self) -> Self:
        """Start all that do not run, and wait until each of them knows all."""
        if self.keeper is not None and not self.keeper.is_running:
            self.keeper.start()
        self._all(lambda broker: broker.start(), [broker for broker in self if not broker.is_running])
        return self.wait_ready()

    def wait_ready(self, ids: Collection[int] | None = None, timeout_s: float = READY_TIMEOUT_S) -> Self:
        """Wait until every broker that runs knows all that run, or these."""
        running = [broker for broker in self if broker.is_running]
        wait_for_members(
            [broker.bootstrap for broker in running],
            {broker.broker_id for broker in running} if ids is None else ids,
            timeout_s,
        )
        return self

    def pid(self, broker_id: int) -> int:
        return self[broker_id].pid

    def kill(self, broker_id: int) -> None:
        self[broker_id].kill()

    def stop(self, broker_id: int) -> None:
        self[broker_id].stop()

    def pause(self, broker_id: int) -> None:
        self[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        self[broker_id].resume()

    def restart(self, broker_id: int) -> None:
        """Stop it in order if it runs, and start it again."""
        self[broker_id].restart()

    def close(self) -> None:
        """End everything, however it stands."""
        try:
            self._all(lambda broker: broker.close(), list(self))
        finally:
            if self.keeper is not None and self.keeper.is_running:
                self.keeper.kill()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _all(self, act: Callable[[ClusterBroker], object], brokers: list[ClusterBroker]) -> None:
        if brokers:
            with ThreadPoolExecutor(len(brokers)) as threads:
                list(threads.map(act, brokers))


class UpProcess(BrokerProcess):
    """`penstock up --brokers N`."""

    def __init__(self, count: int, data: Path, *, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(data, port=port, settings=settings)
        self.count = count

    def command(self) -> list[str]:
        return [*super().command(), "--brokers", str(self.count)]


class UpCluster:
    """A cluster that `penstock up` runs: what ends there comes back by itself."""

    def __init__(self, count: int, data: Path, *, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        self.process = UpProcess(count, data, port=port, settings=settings)
        self._killed: set[int] = set()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.process.addresses)

    def start(self) -> Self:
        self.process.start()
        return self.wait_ready()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> Self:
        """Wait until every broker serves, also those that were killed, and knows all."""
        ids = range(self.process.count)
        _wait_until(
            lambda: not any(self.pid(broker_id) in self._killed for broker_id in ids),
            "a broker does not come back",
            timeout_s,
        )
        wait_for_members(self.process.addresses, ids, timeout_s)
        return self

    def pid(self, broker_id: int) -> int:
        """The last process of a broker."""
        return _serving_processes(self.process.log_text(), f"broker {broker_id}: ")[-1]

    def kill(self, broker_id: int) -> None:
        """End a broker at once (SIGKILL)."""
        self._killed.add(self.pid(broker_id))
        os.kill(self.pid(broker_id), signal.SIGKILL)

    def stop_one(self, broker_id: int) -> None:
        """Ask one broker to stop (SIGTERM) and wait until it has; it comes back all the same."""
        pid = self.pid(broker_id)
        self._killed.add(pid)
        os.kill(pid, signal.SIGTERM)
        _wait_until(lambda: not is_alive(pid), f"broker {broker_id} does not stop", STOP_TIMEOUT_S)

    def pause(self, broker_id: int) -> None:
        os.kill(self.pid(broker_id), signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        os.kill(self.pid(broker_id), signal.SIGCONT)

    def stop(self) -> None:
        """Stop everything in order."""
        self.process.stop()

    def close(self) -> None:
        if self.process.is_running:
            for broker_id in range(self.process.count):
                with suppress(ProcessLookupError, IndexError):
                    self.resume(broker_id)
        self.process.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs (or is stopped), and is not just waiting to be reaped.

    As long as it has other threads that are still ending, its sockets and locks are held.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX" or threads > 1


def members(address: str) -> set[int]:
    """The ids of the brokers that live, as the one at an address knows; empty if it does not answer.

    Metadata would not do: it names brokers that have died for a few seconds more.
    """
    host, _, port = address.rpartition(":")
    try:
        with RawClient(host.strip("[]"), int(port)) as client:
            return {broker.broker_id for broker in client.call(DescribeClusterRequest()).brokers}
    except (OSError, ConnectionEnded):
        return set()


def wait_for_members(addresses: Collection[str], ids: Collection[int], timeout_s: float = READY_TIMEOUT_S) -> None:
    """Wait until the brokers at these addresses know exactly the brokers with these ids."""
    _wait_until(
        lambda: all(members(address) == set(ids) for address in addresses),
        f"not every broker of {', '.join(addresses)} knows brokers {sorted(ids)}",
        timeout_s,
    )


def _serving_processes(log: str, prefix: str) -> list[int]:
    """The process ids in a log, the newest last."""
    return [int(found) for found in re.findall(rf"{prefix}serving as process (\d+)", log)]


def _wait_until(condition: Callable[[], bool], otherwise: str, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise BrokerProcessError(f"after {timeout_s} s: {otherwise}")
        time.sleep(POLL_S)
