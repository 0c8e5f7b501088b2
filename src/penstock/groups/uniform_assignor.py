"""The `uniform` assignor: even first, sticky second.

Everybody keeps what it has and still subscribes to; what nobody has is dealt out, and what is too much is moved.

Where all members subscribe to the same topics, everybody gets the same number of partitions, give or take one: it is
known from the start how much each may keep, and members that already have more get the places with one more. So no
other even assignment moves less.

Where subscriptions differ, topics are dealt out one by one, those first that have the most partitions for each
subscriber, always to the subscriber that has the least. Then, within each topic, partitions move from the subscriber
that has the most to the one that has the least, until no topic can be improved on its own. With subscriptions that
overlap in chains a move in one topic may allow another one in the next; this is done a few times and not for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias
from uuid import UUID

ROUNDS_MAX = 16

_Partition: TypeAlias = tuple[int, int]
"""number of the topic, partition; numbers compare faster than ids"""
_Counts: TypeAlias = Mapping[int, int]


def assign_uniformly(
    subscriptions: Mapping[str, frozenset[UUID]],
    before: Mapping[str, Mapping[UUID, frozenset[int]]],
    partition_counts: Mapping[UUID, int],
) -> dict[str, dict[UUID, frozenset[int]]]:
    """What each member is meant to have, given what each was meant to have before."""
    topic_ids = sorted(frozenset().union(*subscriptions.values()))
    number_of = {topic_id: number for number, topic_id in enumerate(topic_ids)}
    counts = {number: partition_counts.get(topic_id, 0) for number, topic_id in enumerate(topic_ids)}
    numbers = {
        subscribed: {number_of[topic_id] for topic_id in subscribed} for subscribed in set(subscriptions.values())
    }
    topics = {member_id: numbers[subscribed] for member_id, subscribed in sorted(subscriptions.items())}
    kept = _kept(topics, before, number_of, counts)
    if len(numbers) <= 1:
        _level(kept, counts)
    else:
        _Balance(kept, topics, counts).run()
    return {member_id: _by_topic(partitions, topic_ids) for member_id, partitions in kept.items()}


def _kept(
    topics: Mapping[str, set[int]],
    before: Mapping[str, Mapping[UUID, frozenset[int]]],
    number_of: Mapping[UUID, int],
    counts: _Counts,
) -> dict[str, list[_Partition]]:
    """What each member can keep, in order: it still subscribes to it, the partition is there, nobody else has it."""
    taken: set[_Partition] = set()
    kept: dict[str, list[_Partition]] = {}
    for member_id, subscribed in topics.items():
        partitions: list[_Partition] = []
        for topic_id, indexes in before[member_id].items():
            topic = number_of.get(topic_id, -1)
            if topic in subscribed:
                partitions += [(topic, index) for index in indexes if index < counts[topic]]
        if not taken.isdisjoint(partitions):
            partitions = [partition for partition in partitions if partition not in taken]
        taken.update(partitions)
        kept[member_id] = sorted(partitions)
    return kept


def _by_topic(partitions: list[_Partition], topic_ids: Sequence[UUID]) -> dict[UUID, frozenset[int]]:
    indexes: dict[int, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return {topic_ids[topic]: frozenset(each) for topic, each in indexes.items()}


def _unassigned(kept: Mapping[str, list[_Partition]], counts: _Counts) -> Iterator[_Partition]:
    taken = {partition for partitions in kept.values() for partition in partitions}
    for topic, count in counts.items():
        for index in range(count):
            if (topic, index) not in taken:
                yield topic, index


def _level(kept: dict[str, list[_Partition]], counts: _Counts) -> None:
    """All members subscribe to the same topics."""
    if not kept:
        return
    least, larger_count = divmod(sum(counts.values()), len(kept))
    by_size = sorted(kept, key=lambda member_id: -len(kept[member_id]))
    quotas = {member_id: least + (number < larger_count) for number, member_id in enumerate(by_size)}
    for member_id, partitions in kept.items():
        del partitions[quotas[member_id] :]
    unassigned = _unassigned(kept, counts)
    for member_id, partitions in kept.items():
        partitions += _first(unassigned, quotas[member_id] - len(partitions))


def _first(partitions: Iterator[_Partition], count: int) -> list[_Partition]:
    return [next(partitions) for _ in range(count)]


class _Balance:
    """Members subscribe to different topics. Members are numbers here, in the order of their ids."""

    def __init__(self, kept: dict[str, list[_Partition]], topics: Mapping[str, set[int]], counts: _Counts) -> None:
        self._kept = kept
        self._counts = counts
        self._member_ids = list(kept)
        self._subscribers: dict[int, list[int]] = {topic: [] for topic in counts}
        for number, member_id in enumerate(self._member_ids):
            for topic in topics[member_id]:
                self._subscribers[topic].append(number)
        self._sizes = [len(partitions) for partitions in kept.values()]
        self._held: dict[int, dict[int, list[int]]] = {topic: {} for topic in counts}
        for number, partitions in enumerate(kept.values()):
            for topic, index in reversed(partitions):  # the last of a list is given away first
                self._held[topic].setdefault(number, []).append(index)

    def run(self) -> None:
        order = sorted(self._counts, key=self._dealing_order)
        self._deal(order)
        contested = [topic for topic in order if len(self._subscribers[topic]) > 1]
        for _ in range(ROUNDS_MAX):
            if not sum(self._level_topic(topic) for topic in contested):
                break
        for number, member_id in enumerate(self._member_ids):
            self._kept[member_id] = [
                (topic, index) for topic, held in self._held.items() for index in held.get(number, ())
            ]

    def _dealing_order(self, topic: int) -> tuple[float, int, int]:
        subscriber_count = len(self._subscribers[topic])
        return -self._counts[topic] / subscriber_count, subscriber_count, topic

    def _deal(self, order: list[int]) -> None:
        """Give what nobody has, topic by topic, to the subscribers that have the least."""
        unassigned: dict[int, list[int]] = {}
        for topic, index in _unassigned(self._kept, self._counts):
            unassigned.setdefault(topic, []).append(index)
        for topic in order:
            smallest = [(self._sizes[number], number) for number in self._subscribers[topic]]
            heapify(smallest)
            for index in unassigned.get(topic, ()):
                size, number = smallest[0]
                heapreplace(smallest, (size + 1, number))
                self._sizes[number] += 1
                self._held[topic].setdefault(number, []).append(index)

    def _level_topic(self, topic: int) -> int:
        """Move partitions of one topic from those that have the most to those that have the least; how many."""
        sizes, held = self._sizes, self._held[topic]
        smallest = [(sizes[number], number) for number in self._subscribers[topic]]
        largest = [(-sizes[number], -number) for number, indexes in held.items() if indexes]
        heapify(smallest)
        heapify(largest)
        moved = 0
        while largest:
            giver = -largest[0][1]
            size, taker = smallest[0]
            if sizes[giver] - size <= 1:
                break
            held.setdefault(taker, []).append(held[giver].pop())
            sizes[giver] -= 1
            sizes[taker] += 1
            moved += 1
            heapreplace(smallest, (size + 1, taker))
            heappop(largest)
            if held[giver]:
                heappush(largest, (-sizes[giver], -giver))
        return moved
