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

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias
from uuid import UUID

ROUNDS_MAX = 16

_Partition: TypeAlias = tuple[UUID, int]
_Assignments: TypeAlias = dict[str, dict[UUID, frozenset[int]]]


def assign_uniformly(
    subscriptions: Mapping[str, frozenset[UUID]],
    before: Mapping[str, Mapping[UUID, frozenset[int]]],
    partition_counts: Mapping[UUID, int],
) -> _Assignments:
    """What each member is meant to have, given what each was meant to have before."""
    kept = _kept(subscriptions, before, partition_counts)
    if len(set(subscriptions.values())) <= 1:
        _level(kept, subscriptions, partition_counts)
    else:
        _Balance(kept, subscriptions, partition_counts).run()
    return {member_id: _by_topic(partitions) for member_id, partitions in kept.items()}


def _kept(
    subscriptions: Mapping[str, frozenset[UUID]],
    before: Mapping[str, Mapping[UUID, frozenset[int]]],
    partition_counts: Mapping[UUID, int],
) -> dict[str, list[_Partition]]:
    """What each member can keep, in order: it still subscribes to it, the partition is there, nobody else has it."""
    taken: set[_Partition] = set()
    kept: dict[str, list[_Partition]] = {}
    for member_id in sorted(subscriptions):
        partitions = {
            (topic_id, index)
            for topic_id, indexes in before[member_id].items()
            if topic_id in subscriptions[member_id]
            for index in indexes
            if index < partition_counts.get(topic_id, 0)
        }
        partitions -= taken
        taken |= partitions
        kept[member_id] = sorted(partitions)
    return kept


def _by_topic(partitions: list[_Partition]) -> dict[UUID, frozenset[int]]:
    indexes: dict[UUID, list[int]] = {}
    for topic_id, index in partitions:
        indexes.setdefault(topic_id, []).append(index)
    return {topic_id: frozenset(each) for topic_id, each in indexes.items()}


def _unassigned(kept: Mapping[str, list[_Partition]], topics: Mapping[UUID, int]) -> Iterator[_Partition]:
    taken = {partition for partitions in kept.values() for partition in partitions}
    for topic_id in sorted(topics):
        for index in range(topics[topic_id]):
            if (topic_id, index) not in taken:
                yield topic_id, index


def _level(
    kept: dict[str, list[_Partition]],
    subscriptions: Mapping[str, frozenset[UUID]],
    partition_counts: Mapping[UUID, int],
) -> None:
    """All members subscribe to the same topics."""
    if not kept:
        return
    subscribed = next(iter(subscriptions.values()))
    topics = {topic_id: partition_counts.get(topic_id, 0) for topic_id in subscribed}
    least, larger_count = divmod(sum(topics.values()), len(kept))
    by_size = sorted(kept, key=lambda member_id: -len(kept[member_id]))
    quotas = {member_id: least + (number < larger_count) for number, member_id in enumerate(by_size)}
    for member_id, partitions in kept.items():
        del partitions[quotas[member_id] :]
    unassigned = _unassigned(kept, topics)
    for member_id, partitions in kept.items():
        for partition in _first(unassigned, quotas[member_id] - len(partitions)):
            partitions.append(partition)


def _first(partitions: Iterator[_Partition], count: int) -> list[_Partition]:
    return [next(partitions) for _ in range(count)]


class _Balance:
    """Members subscribe to different topics. Members are numbers here, in the order of their ids."""

    def __init__(
        self,
        kept: dict[str, list[_Partition]],
        subscriptions: Mapping[str, frozenset[UUID]],
        partition_counts: Mapping[UUID, int],
    ) -> None:
        self._kept = kept
        self._member_ids = list(kept)
        self._subscribers: dict[UUID, list[int]] = {}
        for number, member_id in enumerate(self._member_ids):
            for topic_id in subscriptions[member_id]:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._topics = {topic_id: partition_counts.get(topic_id, 0) for topic_id in self._subscribers}
        self._sizes = [len(partitions) for partitions in kept.values()]
        self._held: dict[UUID, dict[int, list[int]]] = {topic_id: {} for topic_id in self._topics}
        for number, partitions in enumerate(kept.values()):
            for topic_id, index in reversed(partitions):  # the last of a list is given away first
                self._held[topic_id].setdefault(number, []).append(index)

    def run(self) -> None:
        order = sorted(self._topics, key=self._dealing_order)
        self._deal(order)
        contested = [topic_id for topic_id in order if len(self._subscribers[topic_id]) > 1]
        for _ in range(ROUNDS_MAX):
            if not sum(self._level_topic(topic_id) for topic_id in contested):
                break
        for number, member_id in enumerate(self._member_ids):
            self._kept[member_id] = [
                (topic_id, index) for topic_id, held in self._held.items() for index in held.get(number, ())
            ]

    def _dealing_order(self, topic_id: UUID) -> tuple[float, int, UUID]:
        subscriber_count = len(self._subscribers[topic_id])
        return -self._topics[topic_id] / subscriber_count, subscriber_count, topic_id

    def _deal(self, order: list[UUID]) -> None:
        """Give what nobody has, topic by topic, to the subscribers that have the least."""
        unassigned: dict[UUID, list[int]] = {}
        for topic_id, index in _unassigned(self._kept, self._topics):
            unassigned.setdefault(topic_id, []).append(index)
        for topic_id in order:
            smallest = [(self._sizes[number], number) for number in self._subscribers[topic_id]]
            heapify(smallest)
            for index in unassigned.get(topic_id, ()):
                size, number = smallest[0]
                heapreplace(smallest, (size + 1, number))
                self._sizes[number] += 1
                self._held[topic_id].setdefault(number, []).append(index)

    def _level_topic(self, topic_id: UUID) -> int:
        """Move partitions of one topic from those that have the most to those that have the least; how many."""
        sizes, held = self._sizes, self._held[topic_id]
        smallest = [(sizes[number], number) for number in self._subscribers[topic_id]]
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
