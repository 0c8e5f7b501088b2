"""What one member's request does to its consumer group, worked out step by step.

A request may change three things, always in this order: what the member subscribes to (and with it the group's epoch),
who in the group is meant to have what, and what this member has. Nothing changes here: each step reads the group as it
is, adds what the steps before it have decided, and writes records.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.steps import Moment, StateRecord
from penstock.groups.assignors import ASSIGNORS, Assignor
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember, Owned
from penstock.groups.consumer_reconciliation import Target, reconcile
from penstock.groups.consumer_records import (
    epoch_record,
    partition_metadata_tombstone,
    pattern_record,
    pattern_tombstone,
    target_epoch_record,
    target_record,
)
from penstock.groups.consumer_targets import Patterns, metadata_hash, new_targets, subscribed_names, topic_ids
from penstock.groups.table import GroupTable


class MemberChange:
    """See the head of this file. `before` is the member as the group has it, `member` as it will be."""

    def __init__(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        member: ConsumerMember,
        table: GroupTable,
        topics_of: Callable[[str], frozenset[str] | None],
        now: Moment,
        *,
        is_pattern_stale: bool,
    ) -> None:
        self.group = group
        self.before = before
        self.member = member
        self.records: list[StateRecord] = []
        self.epoch = group.epoch
        self.patterns: Patterns = group.patterns
        self.has_new_subscription = False
        self.target = self._last_target()
        self._settings = table.settings
        self._topics = table.topics
        self._topics_of = topics_of
        self._now = now
        self._is_pattern_stale = is_pattern_stale

    # ── what it subscribes to ────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self) -> None:
        """Write down what the member says of itself; the group's epoch grows if it reads something else now."""
        before, member = self.before, self.member
        if member != before:
            self.records.append(member.subscription_record(self.group.group_id))
        has_new_names = member.topic_names != before.topic_names
        has_new_pattern = member.topic_pattern != before.topic_pattern
        self.has_new_subscription = has_new_names or has_new_pattern
        is_unknown = bool(member.topic_pattern) and not self._is_known(member.topic_pattern, self.group.patterns)
        is_pattern_known = (has_new_pattern or is_unknown) and self._change_pattern()
        if has_new_names or is_pattern_known:
            self._grow()

    def _is_known(self, pattern: str, patterns: Patterns) -> bool:
        return pattern in patterns and not self._is_pattern_stale

    def _change_pattern(self) -> bool:
        """Whether it is known that the member may read other topics now. If not, the epoch grows when it is."""
        group, old, new = self.group, self.before.topic_pattern, self.member.topic_pattern
        patterns = dict(group.patterns)
        self.patterns = patterns
        if old and old != new and group.pattern_counts[old] == 1:
            self.records.append(pattern_tombstone(group.group_id, old))
            patterns.pop(old, None)
        if not new or self._is_known(new, patterns):
            return True
        topics = self._topics_of(new)
        if topics is None:
            return False
        if patterns.get(new) == topics:
            return new != old
        patterns[new] = topics
        self.records.append(pattern_record(group.group_id, new, topics, self._now.wall_ms))
        return True

    def _grow(self) -> None:
        group = self.group
        self.epoch = group.epoch + 1
        names = subscribed_names(group, self.patterns, [self.before], [self.member])
        self.records.append(epoch_record(group.group_id, self.epoch, metadata_hash(names, self._topics)))
        if group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(group.group_id))

    # ── who is meant to have what ────────────────────────────────────────────────────────────────────────────────

    def retarget(self) -> None:
        """Compute the target of the group's epoch, unless that is done, or the last one is too young."""
        group = self.group
        if group.assignment_epoch >= self.epoch or not self._is_time():
            return
        before = dict(group.targets)
        replaced_id = self._replaced_id()
        if replaced_id is not None:
            before[self.member.member_id] = before.pop(replaced_id, {})
        members = {**group.members, self.member.member_id: self.member}
        members.pop(replaced_id or "", None)
        targets = new_targets(members.values(), before, self.patterns, self._topics, self._assignor())
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                self.records.append(target_record(group.group_id, member_id, target))
        self.records.append(target_epoch_record(group.group_id, self.epoch, self._now.wall_ms))
        self.target = Target(self.epoch, targets[self.member.member_id])

    def _is_time(self) -> bool:
        assigned_at_ms = self.group.assigned_at_ms
        if not assigned_at_ms:
            return True
        age_ms = self._now.wall_ms - assigned_at_ms  # below 0 if the clock was put back, perhaps by hours
        return not 0 <= age_ms < self._settings.consumer_assignment_interval_ms

    def _replaced_id(self) -> str | None:
        """Whom this static member takes the place of."""
        static_id = self.group.static_id(self.member.instance_id)
        return static_id if static_id != self.member.member_id else None

    def _last_target(self) -> Target:
        member_id = self._replaced_id() or self.member.member_id
        return Target(self.group.assignment_epoch, self.group.targets.get(member_id, {}))

    def _assignor(self) -> Assignor:
        """The one that most members ask for; of equals, the one that is named first in the settings."""
        counts = self.group.assignor_counts.copy()
        counts.subtract([self.before.server_assignor or ""])
        counts.update([self.member.server_assignor or ""])
        return ASSIGNORS[max(self._settings.consumer_assignors, key=lambda name: counts[name])]

    # ── what the member has ──────────────────────────────────────────────────────────────────────────────────────

    def reconcile(self, owned: Owned | None) -> None:
        """One step towards the target."""
        if not self.has_new_subscription and self.member.is_reconciled_to(self.target.epoch):
            return
        reconciled = reconcile(
            self.member,
            self.target,
            topic_ids(self.member, self.patterns, self._topics),
            owned,
            self.group.owner,
            has_new_subscription=self.has_new_subscription,
        )
        if reconciled != self.member:
            self.records.append(reconciled.assignment_record(self.group.group_id))
            self.member = reconciled
