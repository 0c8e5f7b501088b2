"""Where a follower cuts its log, beside a dumb model: two logs that share a beginning agree after a few rounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.follower import (
    NO_EPOCH_END,
    EpochEnd,
    Placed,
    cut_offset,
    followed_high_watermark,
    place_after_out_of_range,
)


def end_of(log: list[int], epoch: int) -> EpochEnd:
    """The largest epoch of a log (the epoch of each of its records) not above this one, and where it ends."""
    known = [each for each in log if each <= epoch]
    return EpochEnd(known[-1], len(known)) if known else NO_EPOCH_END


def diverging(leader: list[int], follower: list[int]) -> EpochEnd | None:
    """What the leader answers to a fetch at the end of the follower's log; None if it goes on from there."""
    if not follower:
        return None
    found = end_of(leader, follower[-1])
    return found if found.epoch < follower[-1] or found.end_offset < len(follower) else None


epochs = st.lists(st.integers(0, 3), max_size=8)


@given(epochs, epochs, epochs)
def test_logs_agree_after_cutting_and_nothing_shared_is_cut(
    same: list[int], ours: list[int], theirs: list[int]
) -> None:
    shared = sorted(same)
    base = (shared[-1] if shared else 0) + 1
    # after the point where they part, no epoch is in both logs: an epoch has one leader, and one history
    leader = shared + sorted(base + 2 * each for each in theirs)
    follower = shared + sorted(base + 2 * each + 1 for each in ours)
    for _ in range(20):
        told = diverging(leader, follower)
        if told is None:
            break
        cut = cut_offset(told, lambda epoch: end_of(follower, epoch), 0, len(follower))
        assert cut < len(follower), "every answer gets it further"
        del follower[cut:]
    assert diverging(leader, follower) is None
    assert follower == leader[: len(follower)]
    assert follower[: len(shared)] == shared or (not leader[len(shared) :] and follower == leader)


def test_after_what_the_leader_does_not_have() -> None:
    assert place_after_out_of_range(5, 8, 20) == Placed(8, is_fresh=True)
    assert place_after_out_of_range(25, 8, 20) == Placed(20, is_fresh=False)
    assert place_after_out_of_range(10, 8, 20) == Placed(10, is_fresh=False)


def test_the_high_watermark_is_followed_as_far_as_the_log_goes() -> None:
    assert followed_high_watermark(3, 10, 7) == 7
    assert followed_high_watermark(3, 2, 7) == 3
    assert followed_high_watermark(3, 5, 7) == 5
