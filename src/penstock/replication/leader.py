"""The leader's rules for one partition: which offsets count as committed, and who is in sync.

The **high watermark** is the offset below which every in-sync replica has every record; it never moves back. What
counts for the leader's own replica is what the flush mode asks for: the end of its log, or the part of it that is
synced. What counts for a follower is the offset that it asks for in a fetch of this leader's epoch: it has everything
before that.

Each rule is there because something is lost without it:

- While a change of the ISR is under way, everybody counts who is in the old one or in the new one (the *maximal* ISR):
  the controller may have written the change already, and may elect anybody of it.
- While the ISR is smaller than `min.insync.replicas`, the high watermark stands still: what is committed must be where
  enough replicas can lose nothing.
- A follower joins the ISR when it has reached the high watermark **and** the start of this leader's epoch: the high
  watermark of a new leader may be older than what its predecessor had committed.
- Only fetches of the current life of a follower's broker (its broker epoch) count: one from before a restart may tell
  of records that the restart has lost.

This is decided here; the shell sends the changes to the controller and brings its answers back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

NO_OFFSET = -1
NO_BROKER_EPOCH = -1


class Membership(NamedTuple):
    """Who holds a partition and who is in sync, as the controller has written it."""

    replicas: tuple[int, ...]
    isr: frozenset[int]
    partition_epoch: int


@lru_cache
def members(isr: tuple[int, ...]) -> frozenset[int]:
    """The ISR as a set, of which there are few different ones: partitions share them."""
    return frozenset(isr)


class IsrChange(NamedTuple):
    """What a leader asks of the controller: this ISR instead, with the broker epoch of each member."""

    isr: dict[int, int]
    leader_epoch: int
    partition_epoch: int


class FollowerState:
    """What a leader knows of one follower. Times are of the monotonic clock."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "leader_end_offset", "log_start_offset")

    def __init__(self, now_ms: int) -> None:
        self.end_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_ms = now_ms  # it had then all that the leader had; a new leader gives everybody a first chance
        self.fetched_ms: int | None = None
        self.leader_end_offset = NO_OFFSET  # of the leader's log, at the last fetch
        self.log_start_offset = 0  # of its own log


class Leader:
    """The leader of one partition in one leader epoch."""

    __slots__ = (
        "_asked",
        "_min_isr",
        "broker_id",
        "end_offset",
        "epoch",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "is_alone",
        "membership",
    )

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        membership: Membership,
        *,
        end_offset: int,
        counted_end_offset: int,
        high_watermark: int,
        min_isr: int,
        now_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.epoch_start_offset = end_offset
        self.high_watermark = high_watermark
        self.end_offset = counted_end_offset
        """Up to where the leader's own replica counts."""
        self.membership = membership
        self.followers: dict[int, FollowerState] = {}
        self._asked: IsrChange | None = None  # what the controller was asked for, until it is known
        self._min_isr = min_isr
        self.is_alone = False
        self._take_membership(membership, now_ms)
        self._advance()

    # ── the high watermark ───────────────────────────────────────────────────────────────────────────────────────

    def local_log_moved(self, counted_end_offset: int) -> bool:
        """The leader's own replica now counts up to an offset; True if the high watermark moved."""
        self.end_offset = counted_end_offset
        if self.is_alone:
            if counted_end_offset <= self.high_watermark:
                return False
            self.high_watermark = counted_end_offset
            return True
        return self._advance()

    def follower_fetched(
        self, follower_id: int, broker_epoch: int, fetch_offset: int, leader_end_offset: int, now_ms: int
    ) -> bool:
        """A follower asks, in this epoch, for what comes at an offset; True if the high watermark moved."""
        follower = self.followers.get(follower_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            return False
        if broker_epoch > follower.broker_epoch:
            follower.broker_epoch = broker_epoch
            follower.fetched_ms = None
        if fetch_offset >= leader_end_offset:
            follower.caught_up_ms = now_ms
        elif follower.fetched_ms is not None and fetch_offset >= follower.leader_end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end_offset = fetch_offset
        follower.fetched_ms = now_ms
        follower.leader_end_offset = leader_end_offset
        return self._advance()

    def follower_starts_at(self, follower_id: int, log_start_offset: int) -> None:
        """A follower has said where its log starts."""
        follower = self.followers.get(follower_id)
        if follower is not None:
            follower.log_start_offset = log_start_offset

    def _advance(self) -> bool:
        if not self.has_enough:
            return False
        committed = self.end_offset
        for follower_id in self.maximal_isr:
            if follower_id != self.broker_id:
                committed = min(committed, self.followers[follower_id].end_offset)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    @property
    def has_enough(self) -> bool:
        """Whether the ISR is as large as writes with acks=all ask for; never more than there are replicas."""
        return len(self.membership.isr) >= min(self._min_isr, len(self.membership.replicas))

    @property
    def has_committed_in_epoch(self) -> bool:
        """Whether the high watermark has reached the start of this epoch; before that, end offsets are not told."""
        return self.high_watermark >= self.epoch_start_offset

    def use_min_isr(self, min_isr: int) -> bool:
        """The setting has changed; True if the high watermark moved by it."""
        self._min_isr = min_isr
        self.is_alone = self._alone()
        return self._advance()

    # ── who is in sync ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everybody whom the controller may take for in sync."""
        isr = self.membership.isr
        return isr if self._asked is None else isr.union(self._asked.isr)

    def isr_change(
        self, now_ms: int, lag_ms_max: int, own_broker_epoch: int, is_living: Callable[[int], bool]
    ) -> IsrChange | None:
        """The change to ask for now, if there is one and none is under way; it counts as asked."""
        if self._asked is not None:
            return None
        wanted = self._wanted(now_ms, lag_ms_max, is_living)
        if wanted == self.membership.isr:
            return None
        self._asked = self._change(wanted, own_broker_epoch)
        self.is_alone = False
        return self._asked

    @property
    def has_joiner(self) -> bool:
        """Whether a follower outside of the ISR has caught up, and nothing is asked for now."""
        membership = self.membership
        if len(membership.isr) == len(membership.replicas) or self._asked is not None:
            return False
        return any(
            follower_id not in membership.isr and self._has_caught_up(follower)
            for follower_id, follower in self.followers.items()
        )

    def _has_caught_up(self, follower: FollowerState) -> bool:
        """Whether a follower has everything that is committed, now and by the leaders before."""
        joins_at = max(self.high_watermark, self.epoch_start_offset)
        return follower.fetched_ms is not None and follower.end_offset >= joins_at

    def _wanted(self, now_ms: int, lag_ms_max: int, is_living: Callable[[int], bool]) -> frozenset[int]:
        leaving = {
            follower_id
            for follower_id, follower in self.followers.items()
            if follower.end_offset < self.end_offset and now_ms - follower.caught_up_ms > lag_ms_max
        }
        joining = {
            follower_id
            for follower_id, follower in self.followers.items()
            if follower_id not in leaving and self._has_caught_up(follower) and is_living(follower_id)
        }
        return (self.membership.isr - leaving) | joining

    def _change(self, wanted: Iterable[int], own_broker_epoch: int) -> IsrChange:
        epochs = {
            member: own_broker_epoch if member == self.broker_id else self.followers[member].broker_epoch
            for member in sorted(wanted)
        }
        return IsrChange(epochs, self.epoch, self.membership.partition_epoch)

    def isr_change_again(self) -> IsrChange | None:
        """The change that is under way, to be asked for again because no answer came.

        It is about the same lives of the same brokers: one that was restarted since may have lost what it had then.
        """
        return self._asked

    def present_isr(self, own_broker_epoch: int) -> IsrChange:
        """To be asked for where an attempt to change the ISR was not answered, and cannot be made any more.

        Once it is granted, that attempt, wherever it may still be on its way, comes too late.
        """
        return self._change(self.membership.isr, own_broker_epoch)

    def isr_change_refused(self) -> bool:
        """The controller has not made the change, and will not; True if the high watermark moved by that."""
        self._asked = None
        self.is_alone = self._alone()
        return self._advance()

    def membership_changed(self, membership: Membership, now_ms: int) -> bool:
        """The controller has written a new state in this leader epoch; True if the high watermark moved by it."""
        if membership.partition_epoch <= self.membership.partition_epoch:
            return False
        self._take_membership(membership, now_ms)
        return self._advance()

    def _take_membership(self, membership: Membership, now_ms: int) -> None:
        self.membership = membership
        self._asked = None
        others = [broker_id for broker_id in membership.replicas if broker_id != self.broker_id]
        self.followers = {broker_id: self.followers.get(broker_id) or FollowerState(now_ms) for broker_id in others}
        self.is_alone = self._alone()

    def _alone(self) -> bool:
        """Whether the high watermark is simply where the own log counts to: the common case of one replica."""
        return self.maximal_isr == {self.broker_id} and self.has_enough

    # ── leases ───────────────────────────────────────────────────────────────────────────────────────────────────

    def is_followed_since(self, since_ms: int) -> bool:
        """Whether every other member of the ISR has fetched in this epoch since a time: then none of them leads."""
        others = self.maximal_isr - {self.broker_id}
        return bool(others) and all(
            (fetched_ms := self.followers[other].fetched_ms) is not None and fetched_ms >= since_ms for other in others
        )
