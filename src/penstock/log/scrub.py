"""Checking, little by little, what lies on the disk and has not been read since the start.

A range is checked the first time it is served; a scrub finds what rots where nobody reads. What this process has
written or checked itself counts as sound. A damaged segment is reported once and left alone: it is not served either.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.log.partition_log import PartitionLog
from penstock.log.ranges import LogRange
from penstock.log.scan import DamagedLog
from penstock.log.segment import Segment
from penstock.log.sparse_index import DamagedIndex


class Scrubbed(NamedTuple):
    """What one step has looked at, and what was wrong with it."""

    size_bytes: int
    problem: str | None


NOTHING_LEFT = Scrubbed(0, None)
NOTHING_DAMAGED: frozenset[Segment] = frozenset()  # one for all logs: an empty set has 200 bytes


class Scrub:
    """The scrub of one log."""

    __slots__ = ("_damaged", "_log")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._damaged: frozenset[Segment] = NOTHING_DAMAGED

    @property
    def has_work(self) -> bool:
        """Whether anything lies on the disk that this process has neither written nor checked, nor found damaged."""
        return any(
            segment.first_unverified() is not None and segment not in self._damaged for segment in self._log.segments
        )

    def step(self, size_bytes_max: int) -> Scrubbed:
        """Check the next part; nothing is left when it has no bytes. Blocks; runs in another thread."""
        for segment in self._log.segments:
            start = segment.first_unverified()
            if start is None or segment in self._damaged:
                continue
            try:
                found = _range_from(segment, start, size_bytes_max)
                done = Scrubbed(found.size_bytes, found.verify())
            except OSError as error:
                if segment not in self._log.segments:  # retention has just taken it
                    continue
                done = Scrubbed(0, f"{segment.log_path}: {error}")
            if done.problem is not None:
                self._damaged |= {segment}
            return done
        return NOTHING_LEFT


def _range_from(segment: Segment, start: int, size_bytes_max: int) -> LogRange:
    """Whole batches from a position on; all of the rest where the index does not help."""
    file = segment.open_file()
    end = min(segment.verified_from, segment.size_bytes)
    if end - start > size_bytes_max:
        try:
            boundary = segment.boundary_at_or_before(start + size_bytes_max)
            end = boundary if boundary > start else end
        except (DamagedIndex, DamagedLog):
            pass
    return LogRange(file, start, end - start, True, segment)
