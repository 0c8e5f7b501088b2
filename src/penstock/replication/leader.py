"""The leader's rules for one partition: which offsets count as committed.

The high watermark is the offset below which every in-sync replica has every record; it never moves back. What counts
for the leader's own replica is what the flush mode asks for: the end of its log, or the part of it that is synced.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Leader:
    """The leader of one partition in one leader epoch."""

    epoch: int
    epoch_start_offset: int
    high_watermark: int

    def local_log_moved(self, counted_end_offset: int) -> bool:
        """The leader's own replica now holds everything below an offset; True if the high watermark moved."""
        if counted_end_offset <= self.high_watermark:
            return False
        self.high_watermark = counted_end_offset
        return True

    @property
    def has_committed_in_epoch(self) -> bool:
        """Whether the high watermark has reached the start of this epoch; before that, end offsets are not told."""
        return self.high_watermark >= self.epoch_start_offset
