"""The follower's rules for one partition: where to fetch, what to cut off, what counts as committed.

A follower fetches from the end of its own log and says of which epoch its last record is. If the leader's log has, for
that epoch, ended elsewhere, it answers with the largest epoch that it knows not above that one, and where it ends: the
follower cuts its log back to where both agree and asks again. It never cuts by the high watermark, which may be older
than what was committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class EpochEnd(NamedTuple):
    """An epoch, and the offset after its last record; (-1, -1) where a log cannot tell."""

    epoch: int
    end_offset: int


NO_EPOCH_END = EpochEnd(-1, -1)


def cut_offset(
    diverging: EpochEnd, own_end_of: Callable[[int], EpochEnd], log_start_offset: int, log_end_offset: int
) -> int:
    """Where a follower cuts its log after the leader told where it diverges.

    `own_end_of` gives, for an epoch, the largest epoch of the own log that is not above it, and where it ends. If the
    own log does not know the leader's epoch, it is cut to the end of what it knows before it; the next fetch finds out
    more. If it knows nothing so old, nothing of it is the leader's.
    """
    own = own_end_of(diverging.epoch)
    if own.epoch == diverging.epoch:
        return min(own.end_offset, diverging.end_offset, log_end_offset)
    if own == NO_EPOCH_END:
        return log_start_offset
    return min(own.end_offset, log_end_offset)


class Placed(NamedTuple):
    """Where a follower goes on when its position is not in the leader's log: `is_fresh` with nothing of its own."""

    offset: int
    is_fresh: bool


def place_after_out_of_range(log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> Placed:
    """The leader does not have what was asked for: it has deleted it, or never had it."""
    if leader_end_offset < log_end_offset:
        return Placed(leader_end_offset, is_fresh=False)
    if leader_start_offset > log_end_offset:
        return Placed(leader_start_offset, is_fresh=True)
    return Placed(log_end_offset, is_fresh=False)


def followed_high_watermark(own: int, told: int, log_end_offset: int) -> int:
    """What a follower takes for committed: what the leader told, as far as it has it; it does not move back."""
    return max(own, min(told, log_end_offset))
