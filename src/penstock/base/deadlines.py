"""When something is to be done, for many things at once: sessions that end, transactions that take too long.

A deadline that moves to a later time costs nothing but a dictionary entry, which is what a heartbeat does: the heap
holds the earlier time, and the deadline is put back when that comes round. So `next_ms` may be too early, never late.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """At most one deadline for each key, in milliseconds of the monotonic clock."""

    def __init__(self) -> None:
        self._at_ms: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._in_heap_ms: dict[K, int] = {}
        self._count = 0

    def __contains__(self, key: K) -> bool:
        return key in self._at_ms

    def set(self, key: K, at_ms: int) -> None:
        """Give the key a deadline, instead of the one it may have."""
        self._at_ms[key] = at_ms
        queued_ms = self._in_heap_ms.get(key)
        if queued_ms is None or at_ms < queued_ms:
            self._push(key, at_ms)

    def clear(self, key: K) -> None:
        self._at_ms.pop(key, None)

    def next_ms(self) -> int | None:
        """When to look again, or None if there is nothing to wait for."""
        while self._heap:
            queued_ms, _, key = self._heap[0]
            if key in self._at_ms and self._in_heap_ms.get(key) == queued_ms:
                return queued_ms
            self._pop()
        return None

    def due(self, now_ms: int) -> Iterator[K]:
        """The keys whose time has come, the earliest first, one by one: what is done for one may move the others.

        A key that is given has no deadline any more.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            key = self._pop()
            at_ms = self._at_ms.get(key)
            if at_ms is None or key in self._in_heap_ms:
                continue
            if at_ms > now_ms:
                self._push(key, at_ms)
            else:
                del self._at_ms[key]
                yield key

    def _push(self, key: K, at_ms: int) -> None:
        self._count += 1
        heappush(self._heap, (at_ms, self._count, key))
        self._in_heap_ms[key] = at_ms

    def _pop(self) -> K:
        queued_ms, _, key = heappop(self._heap)
        if self._in_heap_ms.get(key) == queued_ms:
            del self._in_heap_ms[key]
        return key
