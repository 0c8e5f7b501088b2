"""The consumer groups of a shard: what the log says of them, who is out, and what becomes of them when topics change.

Members make themselves heard with heartbeats, in the new protocol (`consumer_heartbeat.py`) or the classic one
(`classic_speakers.py`). Here is what happens without them. A member is out when its session ends, or when it does not
give up in time what it must give up: its record is deleted and the group's epoch grows, and the next heartbeat of any
other member computes a new target. The same happens when the topics of a group change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from penstock.base.deadlines import Deadlines
from penstock.base.steps import Moment, StateRecord, Step
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_change import MemberChange
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember, MemberState
from penstock.groups.consumer_records import epoch_record, member_tombstones, pattern_record, pattern_tombstone
from penstock.groups.consumer_targets import metadata_hash, subscribed_names
from penstock.groups.conversion import check_upgrade, downgraded, may_downgrade, upgraded
from penstock.groups.pattern_sights import PatternSights
from penstock.groups.regular_expressions import TopicPatterns
from penstock.groups.table import GroupTable
from penstock.wire.messages.offsets_topic_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

CONSUMER_GROUP_KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)


class Wait(Enum):
    """What a deadline is the end of. Each ends the membership of whoever lets it pass."""

    SESSION = auto()
    REVOCATION = auto()
    REJOIN = auto()
    """of a member of the classic protocol, which was told that there is a rebalance"""
    SYNC = auto()
    """of a member of the classic protocol, which has joined and has not asked for its assignment"""


class Timer(NamedTuple):
    wait: Wait
    group_id: str
    member_id: str


@dataclass(slots=True)
class Joined:
    """A group that somebody joins, and what it was before."""

    group: ConsumerGroup
    classic: ClassicGroup | None = None
    records: list[StateRecord] = field(default_factory=list)
    """that make the classic group this one"""


class ConsumerGroups:
    """See the head of this file. `let_go` answers whoever waits in a classic group that becomes a consumer group."""

    def __init__(self, table: GroupTable, let_go: Callable[[ClassicGroup, Step], None]) -> None:
        self.table = table
        self._let_go = let_go
        self._topic_patterns = TopicPatterns(table.topics.names)
        self.sights = PatternSights(self._has_pattern)
        self._deadlines: Deadlines[Timer] = Deadlines()

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: StateRecord) -> None:
        """A record with one of `CONSUMER_GROUP_KEYS`."""
        group_id = record.key.group_id
        group = self.table.of_kind(group_id, ConsumerGroup)
        if group is None:
            if record.value is None:
                return
            group = ConsumerGroup(group_id)
            self.table.put(group)
        group.replay(record)
        if group.is_deleted:
            self.table.remove(group)

    def start(self, now: Moment, step: Step) -> None:
        """The log has been read: every member has a whole session to make itself heard."""
        for group in self._groups():
            for member in group.members.values():
                self.heard_of(group, member, now)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    wait = Wait.REVOCATION if member.classic is None else Wait.REJOIN
                    self.expect(wait, group, member.member_id, member.rebalance_timeout_ms, now)
            self._look_at_topics(group, now, step)

    def _groups(self) -> Iterable[ConsumerGroup]:
        return (group for group in self.table if isinstance(group, ConsumerGroup))

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_deadline_ms(self) -> int | None:
        return 0 if self._topic_patterns.is_behind else self._deadlines.next_ms()

    def on_time(self, now: Moment, step: Step) -> None:
        """Who is out, and what patterns stand for. One decision about a group at a time: the rest waits its turn."""
        out: dict[str, set[str]] = {}
        for timer in self._deadlines.due(now.monotonic_ms):
            out.setdefault(timer.group_id, set()).add(timer.member_id)
        for group_id, member_ids in out.items():
            found = self.table.of_kind(group_id, ConsumerGroup)
            if found is not None:
                members = [found.members[member_id] for member_id in sorted(member_ids) if member_id in found.members]
                self.remove(found, members, now, step)
        if self._topic_patterns.is_behind and not out:
            finished = self._topic_patterns.work()
            for group in self._groups():
                if not finished.isdisjoint(group.pattern_counts):
                    self._look_at_topics(group, now, step)

    def heard_of(self, group: ConsumerGroup, member: ConsumerMember, now: Moment) -> None:
        """The member lives: its session begins anew."""
        timeout_ms = self.table.settings.consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.expect(Wait.SESSION, group, member.member_id, timeout_ms, now)

    def expect(self, wait: Wait, group: ConsumerGroup, member_id: str, timeout_ms: int, now: Moment) -> None:
        """The member is out if what is waited for does not come in this time."""
        self._deadlines.set(Timer(wait, group.group_id, member_id), now.monotonic_ms + timeout_ms)

    def is_expected(self, wait: Wait, group: ConsumerGroup, member_id: str) -> bool:
        return Timer(wait, group.group_id, member_id) in self._deadlines

    def came(self, wait: Wait, group: ConsumerGroup, member_id: str) -> None:
        """What was waited for has come."""
        self._deadlines.clear(Timer(wait, group.group_id, member_id))

    def forget(self, group: ConsumerGroup, member_id: str) -> None:
        """Nothing is expected of the member any more."""
        for wait in Wait:
            self.came(wait, group, member_id)

    # ── topics ───────────────────────────────────────────────────────────────────────────────────────────────────

    def topics_changed(self, names: frozenset[str], now: Moment, step: Step) -> None:
        """Some topics were created, changed or deleted."""
        there = frozenset(name for name in names if self.table.topics.named(name) is not None)
        self._topic_patterns.names_changed(there, names - there)
        self._topic_patterns.work()
        for group in self._groups():
            if group.pattern_counts or not names.isdisjoint(group.name_counts):
                self._look_at_topics(group, now, step)

    def _look_at_topics(self, group: ConsumerGroup, now: Moment, step: Step) -> None:
        """See what the group's patterns stand for now; its epoch grows if it has other topics than before."""
        patterns = dict(group.patterns)
        for pattern in group.pattern_counts:
            topics = self.sights.seen(group.group_id, pattern, self._topic_patterns.topics(pattern))
            if topics is not None and topics != patterns.get(pattern):
                patterns[pattern] = topics
                step.records.append(pattern_record(group.group_id, pattern, topics, now.wall_ms))
        now_hash = metadata_hash(subscribed_names(group, patterns, without=()), self.table.topics)
        if now_hash != group.metadata_hash:
            step.records.append(epoch_record(group.group_id, group.epoch + 1, now_hash))

    # ── members ──────────────────────────────────────────────────────────────────────────────────────────────────

    def topics_of(self, pattern: str) -> frozenset[str] | None:
        """What a pattern that somebody asks for stands for, or None if that is known later. ApiError if it is bad."""
        return self._topic_patterns.look_up(
            pattern, lambda: {pattern for group in self._groups() for pattern in group.pattern_counts}
        )

    def _has_pattern(self, group_id: str, pattern: str) -> bool:
        group = self.table.of_kind(group_id, ConsumerGroup)
        return group is not None and pattern in group.pattern_counts

    def change(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        member: ConsumerMember,
        now: Moment,
        *,
        is_pattern_stale: bool = False,
    ) -> MemberChange:
        """To work out what becomes of the group with this change of a member."""

        def topics_of(pattern: str) -> frozenset[str] | None:
            return self.sights.seen(group.group_id, pattern, self.topics_of(pattern))

        return MemberChange(group, before, member, self.table, topics_of, now, is_pattern_stale=is_pattern_stale)

    def remove(self, group: ConsumerGroup, members: Collection[ConsumerMember], now: Moment, step: Step) -> None:
        """Members that left or are out. If only members of the classic protocol are left, the group becomes theirs."""
        if not members:
            return
        if may_downgrade(group, self.table.settings, members):
            step.records += downgraded(group, members, None, self.table.topics, now)
            self.forget_all(group)
            return
        group_id = group.group_id
        patterns = dict(group.patterns)
        pattern_counts = group.pattern_counts.copy()
        for member in members:
            self.forget(group, member.member_id)
            step.records += member_tombstones(group_id, member.member_id)
            pattern_counts.subtract([member.topic_pattern])
        for pattern in group.pattern_counts:
            if not pattern_counts[pattern]:
                patterns.pop(pattern, None)
                step.records.append(pattern_tombstone(group_id, pattern))
        names = subscribed_names(group, patterns, without=members)
        step.records.append(epoch_record(group_id, group.epoch + 1, metadata_hash(names, self.table.topics)))

    def forget_all(self, group: ConsumerGroup) -> None:
        """The group is not one of ours any more."""
        for member_id in group.members:
            self.forget(group, member_id)

    # ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────

    def to_join(self, group_id: str) -> Joined:
        """The group that somebody joins: as it is, a new one, or a classic one as it will be; ApiError if it cannot."""
        found = self.table.get(group_id)
        if isinstance(found, ConsumerGroup):
            return Joined(found)
        joined = Joined(ConsumerGroup(group_id))
        if isinstance(found, ClassicGroup):
            joined.classic = found
            joined.records = found.tombstones()
            if not found.is_empty:
                check_upgrade(found, self.table.settings)
                joined.records = upgraded(found, self.table.topics)
            for record in joined.records:
                joined.group.replay(record)
        return joined

    def take_over(self, joined: Joined, now: Moment, step: Step) -> None:
        """Somebody has joined: if the group was classic, it is ours from now on."""
        if joined.classic is not None:
            for member in joined.group.members.values():
                self.heard_of(joined.group, member, now)
            self._let_go(joined.classic, step)
            step.records += joined.records
