"""What is due when: keys with times, the earliest first. A key that is set again has its new time only."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """See the head of this file. Old times stay in the heap until they come to its top, or are too many."""

    def __init__(self) -> None:
        self._at_ms: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0  # keys of the same time come in the order in which they were set

    def set(self, key: K, at_ms: int) -> None:
        self._at_ms[key] = at_ms
        self._count += 1
        heappush(self._heap, (at_ms, self._count, key))
        if len(self._heap) > 2 * len(self._at_ms) + 100:
            self._heap = [entry for entry in self._heap if self._at_ms.get(entry[2]) == entry[0]]
            heapify(self._heap)

    def drop(self, key: K) -> None:
        self._at_ms.pop(key, None)

    def __contains__(self, key: K) -> bool:
        return key in self._at_ms

    def next_ms(self) -> int | None:
        """The time of the earliest."""
        self._forget_old()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int, count_max: int) -> list[K]:
        """Those whose time has come, at most so many; they are not kept."""
        due: list[K] = []
        while len(due) < count_max:
            self._forget_old()
            if not self._heap or self._heap[0][0] > now_ms:
                break
            key = heappop(self._heap)[2]
            del self._at_ms[key]
            due.append(key)
        return due

    def _forget_old(self) -> None:
        while self._heap and self._at_ms.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
