"""What one scrape of the metrics reads: the broker's own state, as it is while the scrape runs.

Nothing is kept for metrics that the broker does not need itself, but for a few counters. What needs a look at every
partition or connection is counted when a scrape begins, a slice at a time, with everybody else's turn in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.base.process_figures import ProcessFigures
from penstock.broker.broker import Broker
from penstock.broker.loop_delay import LoopDelay
from penstock.broker.metrics_format import labels
from penstock.broker.partition import Partition
from penstock.broker.requests import Dispatcher
from penstock.broker.server import Server, Traffic
from penstock.broker.session_counts import SessionCounts
from penstock.replication.leader import Leader
from penstock.zookeeper.topic_znodes import NO_LEADER

T = TypeVar("T")

SLICE = 200  # partitions, connections or groups that are looked at before others get their turn


@dataclass(frozen=True, slots=True)
class Metered:
    """The living parts of a broker that metrics tell of."""

    broker: Broker
    server: Server
    dispatcher: Dispatcher
    session: SessionCounts
    loop_delay: LoopDelay
    process_figures: Callable[[], ProcessFigures] | None  # not in the simulator: it would see the real process


@dataclass(slots=True)
class ClusterTotals:
    """What the controller sees of all partitions."""

    partitions: int = 0
    offline: int = 0
    under_replicated: int = 0
    not_preferred: int = 0


@dataclass(slots=True)
class HeldTotals:
    """The replicas on this broker, together."""

    leaders: int = 0
    followers: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Scrape:
    """See the head of this file. `partitions` are those that get series of their own, with their labels."""

    metered: Metered
    series_max: int
    partitions: list[tuple[str, Partition]] = field(default_factory=list)
    omitted: Counter[str] = field(default_factory=Counter)
    held: HeldTotals = field(default_factory=HeldTotals)
    cluster: ClusterTotals | None = None
    traffic: dict[str, Traffic] = field(default_factory=dict)
    group_states: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(type, state) of the groups that this broker looks after."""
    transaction_states: Counter[str] = field(default_factory=Counter)
    process: ProcessFigures | None = None

    @property
    def broker(self) -> Broker:
        return self.metered.broker

    @property
    def led(self) -> Iterable[tuple[str, Partition, Leader]]:
        """Those of the partitions that this broker leads."""
        for tags, partition in self.partitions:
            if (leader := partition.leader) is not None:
                yield tags, partition, leader

    @classmethod
    async def begin(cls, metered: Metered) -> Scrape:
        broker = metered.broker
        scrape = cls(metered, broker.settings.integer("metrics.series.max"))
        await scrape._count_held()
        await scrape._count_traffic()
        if broker.role.is_controller:
            await scrape._count_cluster()
        await scrape._count_states()
        if metered.process_figures is not None:
            scrape.process = metered.process_figures()
        return scrape

    async def _count_held(self) -> None:
        held = self.held
        async for partition in in_slices(list(self.broker.partitions)):
            if len(self.partitions) < self.series_max:
                name = partition.name
                self.partitions.append((labels(topic=name.topic, partition=name.partition), partition))
            else:
                self.omitted["partitions"] += 1
            leader = partition.leader
            held.leaders += leader is not None
            held.followers += leader is None
            held.offline += partition.is_gone
            held.size_bytes += partition.log.size_bytes
            if leader is not None:
                held.under_replicated += is_under_replicated(leader)
                held.under_min_isr += not leader.has_enough

    async def _count_traffic(self) -> None:
        server = self.metered.server
        self.traffic = {name: traffic.copy() for name, traffic in server.ended.items()}  # before those that are open
        async for connection in in_slices(server.connections):
            traffic = self.traffic[connection.listener_name]
            traffic.connections += 1
            traffic.received_bytes += connection.received_bytes
            traffic.sent_bytes += connection.sent_bytes

    async def _count_cluster(self) -> None:
        totals = ClusterTotals()
        async for state in in_slices([each for topic in self.broker.view.topics.values() for each in topic.partitions]):
            totals.partitions += 1
            totals.offline += state.leader == NO_LEADER
            totals.under_replicated += len(state.isr) < len(state.replicas)
            totals.not_preferred += state.leader not in (NO_LEADER, state.replicas[0])
        self.cluster = totals

    async def _count_states(self) -> None:
        async for group in in_slices([each for log in self.broker.groups for each in log.machine.table]):
            self.group_states[group.kind.value, group.state_name] += 1
        async for transaction in in_slices([each for log in self.broker.transactions for each in log.machine.table]):
            self.transaction_states[transaction.state.label] += 1


def is_under_replicated(leader: Leader) -> bool:
    """Whether a replica is not in sync."""
    membership = leader.membership
    return len(membership.isr) < len(membership.replicas)


async def in_slices(items: list[T]) -> AsyncIterator[T]:
    """All of them, with others' turns in between."""
    for number, item in enumerate(items, 1):
        yield item
        if number % SLICE == 0:
            await asyncio.sleep(0)
