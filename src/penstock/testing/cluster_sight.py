"""What a cluster says of itself: who leads, who is the controller, who is in sync. Asked over the wire, of whoever
answers, so that it works with any cluster that speaks Kafka's protocol.

    sight = ClusterSight({0: "127.0.0.1:9092", 1: "127.0.0.1:9093"})
    cluster.kill(sight.leaders("orders")[0])
    sight.wait_in_sync()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from penstock.base.identifiers import TopicPartition
from penstock.testing.raw_client import ConnectionEnded, RawClient
from penstock.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

PATIENCE_S = 60.0
POLL_S = 0.02


class NobodyAnswers(AssertionError):
    """No broker of the cluster can be asked."""


class ClusterSight:
    """See the head of this file. `avoid` are the ids of brokers that are not to be asked, because they stand still."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self.addresses = dict(addresses)

    def metadata(self, topics: Collection[str] | None = None, avoid: Collection[int] = ()) -> Any:
        """The answer of the first broker that gives one; of all topics if none are named."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        for broker_id, address in self.addresses.items():
            if broker_id in avoid:
                continue
            host, _, port = address.rpartition(":")
            try:
                with RawClient(host.strip("[]"), int(port)) as client:
                    return client.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
            except (OSError, ConnectionEnded):
                continue
        raise NobodyAnswers(f"nobody answers at {self.addresses}")

    def controller(self, avoid: Collection[int] = ()) -> int:
        """Waits until there is one among those who may be asked."""
        found = -1

        def is_found() -> bool:
            nonlocal found
            found = int(self.metadata([], avoid).controller_id)
            return found >= 0 and found not in avoid

        wait_until(is_found, lambda: "there is no controller")
        return found

    def leaders(self, topic: str, avoid: Collection[int] = ()) -> dict[int, int]:
        """The leader of each partition, -1 where there is none."""
        (found,) = self.metadata([topic], avoid).topics
        return {one.partition_index: one.leader_id for one in found.partitions}

    def out_of_sync(self, avoid: Collection[int] = ()) -> list[TopicPartition]:
        """The partitions, of all topics, of which not every replica is in sync."""
        return [
            TopicPartition(topic.name, one.partition_index)
            for topic in self.metadata(None, avoid).topics
            for one in topic.partitions
            if one.error_code or one.leader_id < 0 or set(one.isr_nodes) != set(one.replica_nodes)
        ]

    def wait_in_sync(self, timeout_s: float = PATIENCE_S) -> None:
        """Until every broker knows all of them, and every replica to be in sync."""
        all_but = {one: self.addresses.keys() - {one} for one in self.addresses}

        def are_in_sync() -> bool:
            try:
                known = {one: len(self.metadata([], avoid).brokers) for one, avoid in all_but.items()}
                return set(known.values()) == {len(all_but)} and not any(map(self.out_of_sync, all_but.values()))
            except NobodyAnswers:
                return False

        wait_until(are_in_sync, lambda: f"not in sync: {self.out_of_sync()}", timeout_s)


def wait_until(condition: Callable[[], bool], otherwise: Callable[[], str], timeout_s: float = PATIENCE_S) -> None:
    """Wait for something about processes, by looking again and again."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"after {timeout_s} s: {otherwise()}")
        time.sleep(POLL_S)
