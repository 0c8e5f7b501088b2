"""How large records are, for limits in bytes: partitions are looked into now and then, and what was found is kept.

Brokers count offsets, not bytes, so how far a trigger may go in bytes is an estimate: from the records at the place
where a partition is read next, as large as Spark will get them. A partition that was not looked into yet is taken for
the mean of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.base.identifiers import TopicPartition
from penstock.spark.planning import Range

#: What a look costs the driver: so many partitions a trigger, so many records and bytes each, and not sooner again.
LOOKS_MAX = 8
RECORDS_LOOKED_AT = 500
BYTES_LOOKED_AT = 256 << 10
LOOK_AGAIN_S = 10.0
#: Before anything was seen.
BYTES_GUESSED = 1000.0


class Look(NamedTuple):
    """What the records of some offsets came to."""

    size_bytes: int
    offsets: int


class SizeEstimates:
    """`look_at` reads the beginning of a range."""

    def __init__(self, look_at: Callable[[Range], Look], clock: Callable[[], float] = time.monotonic) -> None:
        self._look_at = look_at
        self._clock = clock
        self._known: dict[TopicPartition, float] = {}
        self._looked_s: dict[TopicPartition, float] = {}

    def bytes_per_offset(
        self, begin: Mapping[TopicPartition, int], sizes: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        """For each partition of `sizes`: in which so many offsets wait, from `begin` on."""
        for where in self._due(sizes):
            look = self._look_at(Range(where, begin[where], begin[where] + min(sizes[where], RECORDS_LOOKED_AT)))
            self._looked_s[where] = self._clock()
            if look.offsets > 0:
                self._known[where] = max(1.0, look.size_bytes / look.offsets)
        mean = sum(self._known.values()) / len(self._known) if self._known else BYTES_GUESSED
        return {where: self._known.get(where, mean) for where in sizes}

    def _due(self, sizes: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Those that were never looked into, the fullest first; then those that were, longest ago."""
        now_s = self._clock()
        due = [where for where in sizes if now_s - self._looked_s.get(where, -LOOK_AGAIN_S) >= LOOK_AGAIN_S]
        return sorted(due, key=lambda where: (self._looked_s.get(where, -1.0), -sizes[where]))[:LOOKS_MAX]
