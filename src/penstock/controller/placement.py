"""Which brokers hold the replicas of new partitions.

Partition by partition and replica by replica, the broker is taken that is best by, in this order: a rack that this
partition does not use yet, a host it does not use yet, the fewest replicas of this topic so far, the fewest partitions
shared with those already chosen (so that the load of a broker that dies spreads over many), and its place in the row
that begins at `start`. The replica that leads the fewest partitions so far comes first: it is the preferred leader.

So racks and hosts differ while there is a choice, and where they are of equal size, or there is none, the numbers of
replicas of any two brokers differ by one at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that may be given replicas. Without a rack or host it shares none with anybody."""

    broker_id: int
    rack: str | None = None
    host: str | None = None


def place_replicas(
    brokers: Sequence[Candidate],
    partition_count: int,
    replication_factor: int,
    *,
    start: int = 0,
    existing: Sequence[Sequence[int]] = (),
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first; `existing` are those the topic has already."""
    assert 1 <= replication_factor <= len(brokers)
    ordered = sorted(brokers, key=lambda broker: broker.broker_id)
    shift = start % len(ordered)
    placing = _Placing(ordered[shift:] + ordered[:shift])
    for replicas in existing:
        placing.count(replicas)
    return [placing.next_partition(replication_factor) for _ in range(partition_count)]


class _Placing:
    """The counts of one placement, which the next choice looks at."""

    def __init__(self, brokers: Sequence[Candidate]) -> None:
        self._brokers = {broker.broker_id: broker for broker in brokers}
        self._place = {broker.broker_id: place for place, broker in enumerate(brokers)}
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()

    def next_partition(self, replication_factor: int) -> tuple[int, ...]:
        chosen: list[int] = []
        racks: Counter[str | None] = Counter()
        hosts: Counter[str | None] = Counter()
        for _ in range(replication_factor):
            best = min(
                (broker for broker in self._brokers.values() if broker.broker_id not in chosen),
                key=lambda broker: (racks[broker.rack], hosts[broker.host], *self._load(broker.broker_id, chosen)),
            )
            chosen.append(best.broker_id)
            racks[best.rack] += best.rack is not None
            hosts[best.host] += best.host is not None
        leader = min(chosen, key=lambda broker_id: self._leaders[broker_id])
        replicas = (leader, *(broker_id for broker_id in chosen if broker_id != leader))
        self.count(replicas)
        return replicas

    def count(self, replicas: Sequence[int]) -> None:
        """Remember a partition that has been placed."""
        self._leaders[replicas[0]] += 1
        for broker_id in replicas:
            self._replicas[broker_id] += 1
            for other in replicas:
                self._pairs[broker_id, other] += 1

    def _load(self, broker_id: int, chosen: list[int]) -> tuple[int, int, int]:
        shared = sum(self._pairs[broker_id, other] for other in chosen)
        return self._replicas[broker_id], shared, self._place[broker_id]
