"""Evening out what brokers hold: as few replicas as possible move, for each move is a whole copy over the network.

Placement is for new partitions; this is for those that are there, after a broker was added or the load has become
uneven. Three rounds, each of single moves of a replica from one broker to another: first partitions with several
replicas on one rack (or host) while another is free; then each topic, until the numbers of its replicas differ by one
at most; then the whole cluster, by moves that keep the topics even. No move makes racks or hosts worse. A broker that
takes the place of a preferred leader is the preferred leader; at the end these are evened out by reordering, for
which nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from penstock.controller.placement import Candidate, balance_leaders

Topics = Sequence[Sequence[Sequence[int]]]
Partition = tuple[int, list[int]]  # the number of its topic, and its replicas


def spread_replicas(brokers: Sequence[Candidate], topics: Topics) -> list[list[tuple[int, ...]]]:
    """The replicas of each partition of each topic, evened out. Replicas on other brokers than these stay."""
    spreading = _Spreading(sorted(brokers, key=lambda broker: broker.broker_id), topics)
    if len(brokers) > 1:
        spreading.part_racks()
        spreading.even_topics()
        spreading.even_cluster()
        spreading.even_leaders()
    return [[tuple(replicas) for replicas in topic] for topic in spreading.topics]


class _Spreading:
    """The replicas as they are to be, and how many each broker has, of each topic and altogether."""

    def __init__(self, brokers: Sequence[Candidate], topics: Topics) -> None:
        self.topics = [[list(replicas) for replicas in topic] for topic in topics]
        self._ids = [broker.broker_id for broker in brokers]
        self._groups = [
            {broker.broker_id: broker.rack for broker in brokers if broker.rack is not None},
            {broker.broker_id: broker.host for broker in brokers if broker.host is not None},
        ]
        self._replicas = dict.fromkeys(self._ids, 0)
        self._leaders = dict.fromkeys(self._ids, 0)
        self._of_topic = [dict.fromkeys(self._ids, 0) for _ in topics]
        for number, topic in enumerate(self.topics):
            for replicas in topic:
                self._count(number, replicas)

    def _count(self, number: int, replicas: Sequence[int]) -> None:
        for broker_id in replicas:
            if broker_id in self._replicas:
                self._replicas[broker_id] += 1
                self._of_topic[number][broker_id] += 1
        if replicas and replicas[0] in self._leaders:
            self._leaders[replicas[0]] += 1

    # The rounds

    def part_racks(self) -> None:
        """Take one of two replicas from the same rack, or host, to another where there is none."""
        for number, topic in enumerate(self.topics):
            for replicas in topic:
                while (move := self._parting(number, replicas)) is not None:
                    self._move(number, replicas, *move)

    def even_topics(self) -> None:
        """Let the brokers have equally many replicas of each topic."""
        for number, topic in enumerate(self.topics):
            self._even(self._of_topic[number], [(number, replicas) for replicas in topic])

    def even_cluster(self) -> None:
        """Let the brokers have equally many replicas altogether, and leave the topics even."""
        partitions = [(number, replicas) for number, topic in enumerate(self.topics) for replicas in topic]
        self._even(self._replicas, partitions, keeps_topics=True)

    def even_leaders(self) -> None:
        """Let the brokers be the preferred leader of equally many partitions, if they are not."""
        if max(self._leaders.values()) - min(self._leaders.values()) < 2:
            return
        for topic in self.topics:
            self._reorder([replicas for replicas in topic if self._is_known(replicas)])
        self._reorder([replicas for topic in self.topics for replicas in topic if self._is_known(replicas)])

    def _is_known(self, replicas: Sequence[int]) -> bool:
        return bool(replicas) and all(broker_id in self._replicas for broker_id in replicas)

    def _reorder(self, partitions: Sequence[list[int]]) -> None:
        place_of = {broker_id: place for place, broker_id in enumerate(self._ids)}
        placed = [[place_of[broker_id] for broker_id in replicas] for replicas in partitions]
        leaders = [0] * len(self._ids)
        for places in placed:
            leaders[places[0]] += 1
        balance_leaders(placed, leaders)
        for replicas, places in zip(partitions, placed, strict=True):
            replicas[:] = [self._ids[place] for place in places]

    # One move

    def _parting(self, number: int, replicas: Sequence[int]) -> tuple[int, int] | None:
        """The move that gives the partition most racks, or else hosts, more than it has; None if there is none."""
        best: tuple[int, int] | None = None
        best_spread = self._spread_of(replicas)
        for giver in replicas:
            if giver not in self._replicas:
                continue
            for taker in sorted(self._ids, key=lambda each: (self._of_topic[number][each], self._replicas[each])):
                after = self._spread_of(_moved(replicas, giver, taker))
                if taker not in replicas and after > best_spread:
                    best, best_spread = (giver, taker), after
        return best

    def _spread_of(self, replicas: Iterable[int]) -> tuple[int, ...]:
        """How many racks, and how many hosts; a broker without one counts as one of its own."""
        ids = list(replicas)
        return tuple(len({groups.get(each, each) for each in ids}) for groups in self._groups)

    def _even(self, counts: dict[int, int], partitions: list[Partition], *, keeps_topics: bool = False) -> None:
        """Move replicas until these counts differ by one at most, or no move is possible.

        First from those above the mean to those below it, so that nothing moves twice; then whatever helps.
        """
        total, count = sum(counts.values()), len(counts)
        for share in (-(-total // count), total // count):
            for giver, taker in self._pairs(counts):
                self._give(giver, taker, partitions, partial(_is_between, counts, share), keeps_topics)
        is_moving = True
        while is_moving:
            is_moving = False
            for giver, taker in self._pairs(counts):
                is_moving |= self._give(giver, taker, partitions, lambda g, t: counts[g] - counts[t] >= 2, keeps_topics)

    def _pairs(self, counts: dict[int, int]) -> Iterable[tuple[int, int]]:
        """(giver, taker): those who have most first, and to those who have least first."""
        for giver in sorted(self._ids, key=lambda each: -counts[each]):
            for taker in sorted(self._ids, key=lambda each: (counts[each], self._replicas[each])):
                yield giver, taker

    def _give(
        self,
        giver: int,
        taker: int,
        partitions: list[Partition],
        is_uneven: Callable[[int, int], bool],
        keeps_topics: bool,
    ) -> bool:
        """Moves replicas from one to the other while they are uneven; whether any was moved.

        The first look is for those whose preferred leadership goes where it is needed, the second for any.
        """
        has_moved = False
        for is_choosy in (True, False):
            for number, replicas in partitions:
                if not is_uneven(giver, taker):
                    return has_moved
                if giver not in replicas or taker in replicas:
                    continue
                counts = self._of_topic[number]
                if keeps_topics and counts[giver] <= counts[taker]:
                    continue
                wants_leader = self._leaders[giver] > self._leaders[taker]
                if is_choosy and (replicas[0] == giver) != wants_leader:
                    continue
                if not self._is_worse(replicas, giver, taker):
                    self._move(number, replicas, giver, taker)
                    has_moved = True
        return has_moved

    def _is_worse(self, replicas: Sequence[int], giver: int, taker: int) -> bool:
        after = self._spread_of(_moved(replicas, giver, taker))
        return any(new < old for new, old in zip(after, self._spread_of(replicas), strict=True))

    def _move(self, number: int, replicas: list[int], giver: int, taker: int) -> None:
        self._replicas[giver] -= 1
        self._replicas[taker] += 1
        self._of_topic[number][giver] -= 1
        self._of_topic[number][taker] += 1
        if replicas[0] == giver:
            self._leaders[giver] -= 1
            self._leaders[taker] += 1
        replicas[:] = _moved(replicas, giver, taker)


def _is_between(counts: dict[int, int], share: int, giver: int, taker: int) -> bool:
    """Has the one more than its share, and the other less?"""
    return counts[giver] > share > counts[taker]


def _moved(replicas: Sequence[int], giver: int, taker: int) -> list[int]:
    return [taker if broker_id == giver else broker_id for broker_id in replicas]
