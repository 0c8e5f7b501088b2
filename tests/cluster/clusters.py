"""The clusters of real processes that storms go over: those that users run.

`LaptopCluster` is `penstock up --brokers 3`: one process that has the keeper in it and brings brokers back by itself.
`MachinesCluster` is three times `penstock broker`, with a `penstock keeper` or with Apache ZooKeeper.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.testing.broker_process import free_port
from penstock.testing.cluster_processes import ClusterProcesses, UpCluster
from penstock.testing.cluster_sight import ClusterSight
from penstock.testing.zookeeper_processes import ApacheZooKeeper, KeeperProcess

from .broker_links import BrokerLinks

BROKERS = 3
IDS = tuple(range(BROKERS))
#: How long a broker that stands still, or is cut off, stays a member.
SESSION_TIMEOUT_MS = 2_000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "replica.lag.time.max.ms": "3000",
}
#: Clients come in by one way, brokers by another, which can be cut.
TWO_WAYS = {
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


class StormyCluster(ABC):
    """Three brokers to which things can be done. Whatever is done to one, `bring_back` undoes."""

    def __init__(self, addresses: list[str]) -> None:
        self.bootstrap = ",".join(addresses)
        self.sight = ClusterSight(dict(enumerate(addresses)))

    @abstractmethod
    def kill(self, broker_id: int) -> None:
        """SIGKILL."""

    @abstractmethod
    def stop(self, broker_id: int) -> None:
        """Ask it to stop, and wait until it has."""

    @abstractmethod
    def bring_back(self, broker_id: int) -> None:
        """Returns when it serves again."""

    @abstractmethod
    def pid(self, broker_id: int) -> int: ...

    @abstractmethod
    def log_text(self) -> str:
        """What all of them logged."""

    @abstractmethod
    def stop_all(self) -> None:
        """In order."""

    @abstractmethod
    def log_folders(self) -> list[Path]:
        """Where each broker has its partitions."""

    def pause(self, broker_id: int) -> None:
        os.kill(self.pid(broker_id), signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        os.kill(self.pid(broker_id), signal.SIGCONT)


class LaptopCluster(StormyCluster):
    def __init__(self, processes: UpCluster) -> None:
        super().__init__(processes.process.addresses)
        self._processes = processes

    def kill(self, broker_id: int) -> None:
        self._processes.kill(broker_id)

    def stop(self, broker_id: int) -> None:
        self._processes.stop_one(broker_id)

    def bring_back(self, broker_id: int) -> None:
        self._processes.wait_ready()

    def pid(self, broker_id: int) -> int:
        return self._processes.pid(broker_id)

    def log_text(self) -> str:
        return self._processes.process.log_text()

    def stop_all(self) -> None:
        self._processes.stop()

    def log_folders(self) -> list[Path]:
        data = self._processes.process.data
        return [(data if one == 0 else data / f"broker-{one}") / "logs" for one in IDS]


class MachinesCluster(StormyCluster):
    def __init__(self, processes: ClusterProcesses) -> None:
        super().__init__([broker.bootstrap for broker in processes])
        self._processes = processes

    def kill(self, broker_id: int) -> None:
        self._processes.kill(broker_id)

    def stop(self, broker_id: int) -> None:
        self._processes.stop(broker_id)

    def bring_back(self, broker_id: int) -> None:
        self._processes[broker_id].start()

    def pid(self, broker_id: int) -> int:
        return self._processes.pid(broker_id)

    def log_text(self) -> str:
        return "\n".join(f"── broker {one.broker_id}\n{one.log_text()}" for one in self._processes)

    def stop_all(self) -> None:
        for broker in self._processes:
            broker.stop()

    def log_folders(self) -> list[Path]:
        return [broker.data / "logs" for broker in self._processes]


@contextmanager
def laptop_cluster(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[LaptopCluster]:
    with UpCluster(BROKERS, folder / "data", settings={**SETTINGS, **(settings or {})}) as processes:
        yield LaptopCluster(processes)


@contextmanager
def machines_cluster(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    zookeeper: str | None = None,
    links: BrokerLinks | None = None,
) -> Iterator[MachinesCluster]:
    """With a keeper of its own, or with the ZooKeeper at an address; over `links` where those are given."""
    with ExitStack() as stack:
        if zookeeper is None:
            zookeeper = stack.enter_context(KeeperProcess(folder / "keeper")).address
        own = {one: _two_ways(one, links) for one in IDS} if links is not None else None
        merged = {**SETTINGS, **(settings or {})}
        processes = ClusterProcesses(BROKERS, folder, zookeeper=zookeeper, settings=merged, own_settings=own)
        if links is not None:
            for broker in processes:
                port = links.to_keeper(broker.broker_id, int(zookeeper.rpartition(":")[2]))
                broker.zookeeper = f"127.0.0.1:{port}"
        stack.enter_context(processes)
        yield MachinesCluster(processes)


@contextmanager
def zookeeper_cluster(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[MachinesCluster]:
    """Three brokers and a server of Apache ZooKeeper."""
    with (
        ApacheZooKeeper(folder / "zookeeper") as server,
        machines_cluster(folder, settings, zookeeper=server.address) as cluster,
    ):
        yield cluster


def _two_ways(broker_id: int, links: BrokerLinks) -> dict[str, str]:
    clients, brokers = free_port(), free_port()
    listen = f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{brokers}"
    advertise = f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{links.to_broker(broker_id, brokers)}"
    return {**TWO_WAYS, "listeners": listen, "advertised.listeners": advertise}
