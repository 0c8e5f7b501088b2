"""A set of byte ranges that grows: which parts of a segment are known to be sound.

Threads that check ranges add them without a lock: every change replaces the whole list, so that the worst two of them
can do to each other is to forget one range, which is then checked again.
"""

from __future__ import annotations

Range = tuple[int, int]


class Intervals:
    """Disjoint, ordered, half-open ranges; those that touch are joined."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: tuple[Range, ...] = ()

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        before = [known for known in self._ranges if known[1] < start]
        after = [known for known in self._ranges if known[0] > end]
        for known in self._ranges[len(before) : len(self._ranges) - len(after)]:
            start, end = min(start, known[0]), max(end, known[1])
        self._ranges = (*before, (start, end), *after)

    def covers(self, start: int, end: int) -> bool:
        return start >= end or any(known[0] <= start and end <= known[1] for known in self._ranges)

    def end_of_run(self, start: int) -> int:
        """Up to where everything from `start` on is in the set; `start` itself if it is not."""
        return next((known[1] for known in self._ranges if known[0] <= start < known[1]), start)

    def cut(self, end: int) -> None:
        """Forget everything from `end` on."""
        self._ranges = tuple((start, min(stop, end)) for start, stop in self._ranges if start < end)

    def __len__(self) -> int:
        return len(self._ranges)
