"""Which brokers hold the replicas of new partitions.

Partition by partition and replica by replica, the broker is taken that is best by, in this order: a rack that this
partition does not use yet, a host it does not use yet, the fewest replicas of this topic so far, the fewest partitions
shared with those already chosen (so that the load of a broker that dies spreads over many), and its place in the row
that begins at `start`. The first replica is the preferred leader; at the end these are evened out.

So racks and hosts differ while there is a choice, and without racks and hosts the numbers of replicas of any two
brokers, and the numbers of partitions they are to lead, differ by one at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        placing.count_existing(replicas)
    return placing.partitions(partition_count, replication_factor)


def place_instead(
    brokers: Sequence[Candidate], assignments: Sequence[Sequence[int]], leaving: int
) -> list[tuple[int, ...] | None]:
    """The assignments with another broker in each place of `leaving`; None where all brokers hold a replica already."""
    placing = _Placing(sorted(brokers, key=lambda broker: broker.broker_id))
    for replicas in assignments:
        placing.count_existing(replicas)
    return [
        tuple(replicas) if leaving not in replicas else placing.substituted(replicas, leaving)
        for replicas in assignments
    ]


def place_more(
    brokers: Sequence[Candidate], assignments: Sequence[Sequence[int]], replication_factor: int
) -> list[tuple[int, ...]]:
    """The assignments of a topic with further brokers behind them, up to that many replicas."""
    assert replication_factor <= len(brokers)
    placing = _Placing(sorted(brokers, key=lambda broker: broker.broker_id))
    for replicas in assignments:
        placing.count_existing(replicas)
    return [placing.extended(replicas, replication_factor) for replicas in assignments]


class _Placing:
    """The counts of one placement, which the next choice looks at. Brokers are known here by their place in the row."""

    def __init__(self, brokers: Sequence[Candidate]) -> None:
        count = len(brokers)
        self._ids = [broker.broker_id for broker in brokers]
        self._place_of = {broker_id: place for place, broker_id in enumerate(self._ids)}
        groups = [
            _group_numbers([broker.rack for broker in brokers]),
            _group_numbers([broker.host for broker in brokers]),
        ]
        self._groups = [numbers for numbers in groups if len(set(numbers)) < count]
        self._replicas = [0] * count
        self._leaders = [0] * count
        self._shared = [[0] * count for _ in brokers]

    def partitions(self, partition_count: int, replication_factor: int) -> list[tuple[int, ...]]:
        placed = [self._next_partition(replication_factor) for _ in range(partition_count)]
        balance_leaders(placed, self._leaders)
        return [tuple(self._ids[place] for place in replicas) for replicas in placed]

    def _next_partition(self, replication_factor: int) -> list[int]:
        chosen: list[int] = []
        left = list(range(len(self._ids)))
        for _ in range(replication_factor):
            best = self._best(left, chosen)
            chosen.append(best)
            left.remove(best)
        self._count(chosen)
        return chosen

    def _best(self, left: list[int], chosen: list[int], *, is_leader: bool = False) -> int:
        best = left
        if not chosen:
            return _least(_least(best, self._replicas.__getitem__), self._leaders.__getitem__)[0]
        for groups in self._groups:
            used = [groups[place] for place in chosen]
            best = _least(best, lambda place, groups=groups, used=used: used.count(groups[place]))  # type: ignore[misc]
        best = _least(best, self._replicas.__getitem__)
        if is_leader:
            best = _least(best, self._leaders.__getitem__)
        best = _least(best, lambda place: sum([self._shared[other][place] for other in chosen]))
        return _least(best, lambda place: -self._leaders[place])[0]

    def substituted(self, replicas: Sequence[int], leaving: int) -> tuple[int, ...] | None:
        """The replicas with another broker in the place of the leaving one, which is counted."""
        chosen = [self._place_of[broker_id] for broker_id in replicas if broker_id in self._place_of]
        left = [place for place in range(len(self._ids)) if place not in chosen]
        if not left:
            return None
        is_leader = replicas[0] == leaving
        best = self._best(left, chosen, is_leader=is_leader)
        self._leaders[best] += is_leader
        self._count_further(best, chosen)
        return tuple(self._ids[best] if broker_id == leaving else broker_id for broker_id in replicas)

    def extended(self, replicas: Sequence[int], replication_factor: int) -> tuple[int, ...]:
        """The replicas with further brokers behind them, which are counted."""
        chosen = [self._place_of[broker_id] for broker_id in replicas if broker_id in self._place_of]
        more: list[int] = []
        while len(replicas) + len(more) < replication_factor:
            best = self._best([place for place in range(len(self._ids)) if place not in chosen], chosen)
            self._count_further(best, chosen)
            chosen.append(best)
            more.append(self._ids[best])
        return (*replicas, *more)

    def _count_further(self, place: int, chosen: Sequence[int]) -> None:
        """One more replica, of a partition that has those already."""
        self._replicas[place] += 1
        for other in chosen:
            self._shared[place][other] += 1
            self._shared[other][place] += 1

    def count_existing(self, replicas: Sequence[int]) -> None:
        """A partition that was placed before, perhaps on brokers that are not here now."""
        is_leader_here = bool(replicas) and replicas[0] in self._place_of
        places = [self._place_of[broker_id] for broker_id in replicas if broker_id in self._place_of]
        self._count(places, is_leader_here=is_leader_here)

    def _count(self, replicas: Sequence[int], *, is_leader_here: bool = True) -> None:
        if is_leader_here:
            self._leaders[replicas[0]] += 1
        for place in replicas:
            self._replicas[place] += 1
            for other in replicas:
                self._shared[place][other] += 1


def balance_leaders(placed: list[list[int]], leaders: list[int]) -> None:
    """Reorder replicas so that the leader counts come together, as far as the replicas allow it.

    If a leads a partition that b holds, and b one that c holds, then a may hand one to b, and b one to c: search for
    such a chain from a broker that leads most to one that leads at least two fewer, until there is none.
    """
    while (chain := _chain(placed, leaders)) is not None:
        for partition, heir in chain:
            replicas = placed[partition]
            leaders[replicas[0]] -= 1
            leaders[heir] += 1
            replicas.remove(heir)
            replicas.insert(0, heir)


def _chain(placed: list[list[int]], leaders: list[int]) -> list[tuple[int, int]] | None:
    """Which partitions to hand to whom, in order; None if the counts are as close as they can be."""
    most = max(leaders)
    if most - min(leaders) < 2:
        return None
    led: dict[int, list[int]] = {}
    for partition, replicas in enumerate(placed):
        led.setdefault(replicas[0], []).append(partition)
    chains: dict[int, list[tuple[int, int]]] = {place: [] for place, count in enumerate(leaders) if count == most}
    queue = list(chains)
    for place in queue:
        for partition in led.get(place, ()):
            for heir in placed[partition]:
                if heir in chains:
                    continue
                chains[heir] = [*chains[place], (partition, heir)]
                if leaders[heir] <= most - 2:
                    return chains[heir]
                queue.append(heir)
    return None


def _group_numbers(names: Sequence[str | None]) -> list[int]:
    """The same number for the same name; a number of its own for each None."""
    numbers: dict[str, int] = {}
    count = len(names)
    return [place + count if name is None else numbers.setdefault(name, place) for place, name in enumerate(names)]


def _least(places: list[int], measure: Callable[[int], int]) -> list[int]:
    """Those with the smallest measure, in the same order."""
    if len(places) == 1:
        return places
    measures = list(map(measure, places))
    smallest = min(measures)
    return [place for place, value in zip(places, measures, strict=True) if value == smallest]
