"""Limits on the traffic of replicas that catch up: which replicas have one, and whether it is used up.

A topic names the replicas (`leader.replication.throttled.replicas` where they are sent from, `follower.…` where they
are fetched to), a broker has the rates. Only replicas outside the ISR are held back: one that is in sync must stay so.
What goes for the named replicas is counted in windows of time; while the average over them is above the rate, nothing
more goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.settings import Settings

EVERYWHERE = "*"
UNLIMITED_RATE = 9223372036854775807


@dataclass(frozen=True, slots=True)
class ThrottledPartitions:
    """The partitions of a topic whose replica on this broker is limited."""

    indexes: frozenset[int] = frozenset()
    is_all: bool = False

    @classmethod
    def of(cls, replicas: Sequence[str], broker_id: int) -> ThrottledPartitions:
        """From a topic's setting: `*`, or each as `partition:broker`."""
        if EVERYWHERE in replicas:
            return cls(is_all=True)
        pairs = (replica.split(":") for replica in replicas)
        return cls(frozenset(int(index) for index, broker in pairs if int(broker) == broker_id))

    def __contains__(self, index: int) -> bool:
        return self.is_all or index in self.indexes


NO_PARTITIONS = ThrottledPartitions()


class ReplicaThrottle:
    """The bytes that went for limited replicas, on one side, lately. Times are of the monotonic clock."""

    def __init__(self, windows_max: int, window_s: float) -> None:
        self._windows_max = windows_max
        self._window_s = window_s
        self._windows: deque[tuple[int, int]] = deque()  # (number of the window since 0, bytes in it)
        self._total_bytes = 0

    @classmethod
    def of(cls, settings: Settings) -> ReplicaThrottle:
        return cls(
            settings.integer("replication.quota.window.num"), settings.integer("replication.quota.window.size.seconds")
        )

    def record(self, size_bytes: int, now_s: float) -> None:
        number = int(now_s // self._window_s)
        self._forget_before(number)
        if self._windows and self._windows[-1][0] == number:
            size_of_window = self._windows.pop()[1]
        else:
            size_of_window = 0
        self._windows.append((number, size_of_window + size_bytes))
        self._total_bytes += size_bytes

    def bytes_per_s(self, now_s: float) -> float:
        """The average since the oldest window that counts began."""
        self._forget_before(int(now_s // self._window_s))
        if not self._windows:
            return 0.0
        began_s = self._windows[0][0] * self._window_s
        return self._total_bytes / max(now_s - began_s, self._window_s)

    def is_used_up(self, now_s: float, bytes_per_s_max: int) -> bool:
        return bytes_per_s_max < UNLIMITED_RATE and self.bytes_per_s(now_s) >= bytes_per_s_max

    def _forget_before(self, number: int) -> None:
        while self._windows and self._windows[0][0] <= number - self._windows_max:
            self._total_bytes -= self._windows.popleft()[1]


class Limit(NamedTuple):
    """How much may go for replicas that are limited; the rate can change."""

    throttle: ReplicaThrottle
    bytes_per_s_max: Callable[[], int]
