"""Several nodes of Apache Kafka that are one cluster, each broker and controller at once, all on this machine.

    with ApacheKafkaCluster(find_jars(), tmp_path, 3, racks={1: "a", 2: "b", 3: "c"}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        kafka[2].kill()
        kafka[2].start()

Nodes are numbered from 1. The controllers are a quorum: of three nodes one may be away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.apache_kafka import SMALL_JVM, START_TRIES, ApacheKafka, ApacheKafkaError, new_cluster_id
from penstock.testing.broker_process import free_port


class ApacheKafkaCluster:
    """`count` nodes. `settings` are those of all of them; `racks` are optional, by node id."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        count: int,
        *,
        settings: Mapping[str, str] | None = None,
        racks: Mapping[int, str] | None = None,
        features: Sequence[str] = (),
        java_flags: Sequence[str] = SMALL_JVM,
    ) -> None:
        self.folder = folder
        self.cluster_id = new_cluster_id()
        self._jars = jars
        self._ids = range(1, count + 1)
        self._settings = {"offsets.topic.replication.factor": str(min(3, count)), **(settings or {})}
        self._racks = racks or {}
        self._features = features
        self._java_flags = java_flags
        self._nodes: dict[int, ApacheKafka] = {}

    def __getitem__(self, node_id: int) -> ApacheKafka:
        return self._nodes[node_id]

    def __iter__(self) -> Iterator[ApacheKafka]:
        return iter(self._nodes.values())

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for clients."""
        return ",".join(node.bootstrap for node in self)

    def start(self) -> Self:
        """Format and start all nodes, and wait until each knows all of them; raises ApacheKafkaError."""
        for left in reversed(range(START_TRIES)):
            self._format()
            for node in self:
                node.launch()
            bad = next((node for node in self if not node.serves(self._ids)), None)
            if bad is None:
                return self
            # Somebody may have taken one of the ports meanwhile.
            self.kill()
            if not left:
                raise ApacheKafkaError(f"node {bad.node_id} of Apache Kafka did not start:\n{bad.last_words()}")
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Stop all at once: one after the other, the last would wait for a controller that is gone."""
        with ThreadPoolExecutor(len(self._ids)) as threads:
            list(threads.map(lambda node: node.stop(), self))

    def kill(self) -> None:
        """End all of them at once, as a power cut of the machine does but for what is not synced."""
        for node in self:
            node.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _format(self) -> None:
        quorum = {node_id: free_port() for node_id in self._ids}
        self._nodes = {node_id: self._node(node_id, quorum) for node_id in self._ids}
        with ThreadPoolExecutor(len(self._ids)) as threads:
            list(threads.map(lambda node: node.format(), self))

    def _node(self, node_id: int, quorum: Mapping[int, int]) -> ApacheKafka:
        rack = {"broker.rack": self._racks[node_id]} if node_id in self._racks else {}
        return ApacheKafka(
            self._jars,
            self.folder / f"kafka-{node_id}",
            settings={**self._settings, **rack},
            features=self._features,
            java_flags=self._java_flags,
            node_id=node_id,
            cluster_id=self.cluster_id,
            quorum=quorum,
        )
