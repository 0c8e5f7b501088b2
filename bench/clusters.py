"""The clusters that are measured: three brokers on this machine that are one log, in the way that users run them.

Penstock is `penstock up --brokers 3`, its keeper and its watcher included in what it uses. Apache Kafka is three nodes
in KRaft mode, each broker and controller at once. Both keep three replicas of everything and want two in sync.
"""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import machine
from bench.brokers import JAVA_FLAGS, Kafka, Penstock
from bench.load import MeasurementFailed
from penstock.testing.apache_kafka import ApacheKafkaError, find_jars
from penstock.testing.apache_kafka_cluster import ApacheKafkaCluster
from penstock.testing.broker_process import BrokerProcessError
from penstock.testing.cluster_processes import UpCluster
from penstock.testing.cluster_sight import ClusterSight
from penstock.testing.raw_client import RawClient

BROKERS = 3
REPLICATION = {"default.replication.factor": "3", "min.insync.replicas": "2"}
DESCRIBE_QUORUM = 55
QUORUM_TOPIC = b"__cluster_metadata"


class Cluster(ABC):
    """Three brokers, of which one can be killed or paused and brought back."""

    name: str

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = {**REPLICATION, **(settings or {})}
        folder.mkdir(parents=True)

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """However it stands."""

    @abstractmethod
    def addresses(self) -> dict[int, str]: ...

    @abstractmethod
    def pid(self, broker_id: int) -> int: ...

    @abstractmethod
    def kill(self, broker_id: int) -> None:
        """SIGKILL, without waiting."""

    @abstractmethod
    def bring_back(self, broker_id: int) -> None:
        """Returns when everything is in sync again."""

    @abstractmethod
    def controller(self) -> int: ...

    @abstractmethod
    def _processes(self) -> list[int]:
        """The first process of each tree."""

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses().values())

    @property
    def sight(self) -> ClusterSight:
        return ClusterSight(self.addresses())

    def pause(self, broker_id: int) -> None:
        os.kill(self.pid(broker_id), signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid(broker_id), signal.SIGCONT)

    def cpu_s(self) -> float:
        return sum(map(machine.cpu_s_of_tree, self._processes()))

    def memory_mb(self) -> float:
        return sum(map(machine.memory_mb_of_tree, self._processes()))


class PenstockCluster(Cluster):
    name = Penstock.name

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self._up = UpCluster(BROKERS, folder / "data", settings=self.settings)

    def start(self) -> None:
        try:
            self._up.start()
        except BrokerProcessError as problem:
            raise MeasurementFailed(str(problem)) from None

    def stop(self) -> None:
        self._up.close()

    def addresses(self) -> dict[int, str]:
        return dict(enumerate(self._up.process.addresses))

    def pid(self, broker_id: int) -> int:
        return self._up.pid(broker_id)

    def kill(self, broker_id: int) -> None:
        self._up.kill(broker_id)

    def bring_back(self, broker_id: int) -> None:
        self._up.wait_ready()
        self.sight.wait_in_sync()

    def controller(self) -> int:
        return self.sight.controller()

    def _processes(self) -> list[int]:
        return [self._up.process.pid]


class KafkaCluster(Cluster):
    name = Kafka.name

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self._nodes = ApacheKafkaCluster(find_jars(), folder, BROKERS, settings=self.settings, java_flags=JAVA_FLAGS)

    def start(self) -> None:
        try:
            self._nodes.start()
        except ApacheKafkaError as problem:
            raise MeasurementFailed(str(problem)) from None

    def stop(self) -> None:
        for node in self._nodes:
            if node.is_running:
                self.resume(node.node_id)
        self._nodes.kill()

    def addresses(self) -> dict[int, str]:
        return {node.node_id: node.bootstrap for node in self._nodes}

    def pid(self, broker_id: int) -> int:
        return self._nodes[broker_id].pid

    def kill(self, broker_id: int) -> None:
        self._nodes[broker_id].kill()

    def bring_back(self, broker_id: int) -> None:
        if not self._nodes[broker_id].is_running:
            self._nodes[broker_id].start()
        self.sight.wait_in_sync()

    def controller(self) -> int:
        """The leader of the controllers, which clients are not told of: asked by DescribeQuorum, version 0."""
        name = bytes([len(QUORUM_TOPIC) + 1]) + QUORUM_TOPIC
        body = b"\x02" + name + b"\x02" + bytes(4) + b"\0\0\0"
        host, _, port = self.bootstrap.partition(",")[0].rpartition(":")
        with RawClient(host, int(port)) as client:
            client.send(client.frame(DESCRIBE_QUORUM, 0, b"\0" + body))
            frame = client.receive_frame()
        at = 4 + 1 + 2 + 1 + len(name) + 1 + 4 + 2  # correlation, tags, error, topics, partitions, partition, its error
        return int.from_bytes(frame[at : at + 4], "big", signed=True)

    def _processes(self) -> list[int]:
        return [node.pid for node in self._nodes if node.is_running]


CLUSTERS: dict[Any, type[Cluster]] = {Penstock: PenstockCluster, Kafka: KafkaCluster}


def wait_s(condition: Any, within_s: float, otherwise: str) -> float:
    """When a condition became true, looked at often."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise MeasurementFailed(f"after {within_s} s: {otherwise}")
        time.sleep(0.002)
    return time.monotonic()
