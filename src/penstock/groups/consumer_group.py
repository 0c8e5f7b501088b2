"""One group of the new protocol (KIP-848): what its records say.

Three epochs tell how far everybody is. The *group epoch* grows when somebody comes, goes or subscribes to something
else, and when its topics change. The *assignment epoch* says for which group epoch the target was computed: who is
meant to have what. A *member epoch* says up to which target a member has come. A group is stable when all are the same.

Everything here changes by `replay` alone. The sums (who owns a partition, how many subscribe to a topic) are kept in
step with the members, so that a heartbeat that changes nothing costs the same in a group of any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.steps import StateRecord
from penstock.groups.assignors import Assignment
from penstock.groups.consumer_member import LEAVING_EPOCH, ConsumerMember, MemberState
from penstock.groups.consumer_records import group_tombstones, target_of
from penstock.groups.table import Group, GroupKind, PartitionCheck
from penstock.wire.messages.offsets_topic_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

FIRST_EPOCH = 1
DELETED_EPOCH = -1
COMMIT_WITH_EPOCHS_SINCE = 9
"""the version of OffsetCommit that members of the new protocol use"""


class ConsumerGroup(Group):
    """See the head of this file."""

    kind = GroupKind.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        """of the topics the group read when it came into its epoch; 0 without any"""
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        """by the wall clock; 0 if the target was not computed, or it is not known when"""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.patterns: dict[str, frozenset[str]] = {}
        """the topics that each pattern stands for, once that is known"""
        self.has_partition_metadata = False
        """an older release of Kafka left a record that is not used any more"""
        self.is_deleted = False
        self.name_counts: Counter[str] = Counter()
        self.pattern_counts: Counter[str] = Counter()
        self.assignor_counts: Counter[str] = Counter()
        self.classic_count = 0
        self.subscription_bytes = 0
        self._classic_protocol_counts: Counter[str] = Counter()
        self._static_ids: dict[str, str] = {}
        self._owners: dict[tuple[UUID, int], str] = {}

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: StateRecord) -> None:
        key, value = record
        match key:
            case ConsumerGroupMetadataKey():
                self._replay_epoch(value)
            case ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None
            case ConsumerGroupMemberMetadataKey():
                self._replay_subscription(key.member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self.assignment_epoch = DELETED_EPOCH if value is None else value.assignment_epoch
                self.assigned_at_ms = 0 if value is None else value.assignment_timestamp
            case ConsumerGroupTargetAssignmentMemberKey():
                if value is None:
                    self.targets.pop(key.member_id, None)
                else:
                    self.targets[key.member_id] = target_of(value)
            case ConsumerGroupCurrentMemberAssignmentKey():
                self._replay_assignment(key.member_id, value)
            case ConsumerGroupRegularExpressionKey():
                if value is None:
                    self.patterns.pop(key.regular_expression, None)
                else:
                    self.patterns[key.regular_expression] = frozenset(value.topics)

    def _replay_epoch(self, value: Any | None) -> None:
        if value is None:
            self.is_deleted = True
        else:
            self.epoch = value.epoch
            self.metadata_hash = value.metadata_hash

    def _replay_subscription(self, member_id: str, value: Any | None) -> None:
        old = self.members.get(member_id)
        if value is None:
            if old is not None:
                self._count(old, -1)
                del self.members[member_id]
        else:
            self._put((old or ConsumerMember(member_id=member_id)).with_subscription(value))

    def _replay_assignment(self, member_id: str, value: Any | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            self._put((old or ConsumerMember(member_id=member_id)).with_assignment(value))
        elif old is not None:
            self._put(replace(old, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned={}, revoking={}))

    def _put(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
        self.members[member.member_id] = member
        self._count(member, 1)

    def _count(self, member: ConsumerMember, change: int) -> None:
        """Add a member to all sums, or take it out again."""
        self.subscription_bytes += change * member.subscription_bytes
        for name in member.topic_names:
            _add(self.name_counts, name, change)
        if member.topic_pattern:
            _add(self.pattern_counts, member.topic_pattern, change)
        if member.server_assignor is not None:
            _add(self.assignor_counts, member.server_assignor, change)
        if member.classic is not None:
            self.classic_count += change
            for name in {name for name, _ in member.classic.protocols}:
                _add(self._classic_protocol_counts, name, change)
        if member.instance_id is not None:
            if change > 0:
                self._static_ids[member.instance_id] = member.member_id
            elif self._static_ids.get(member.instance_id) == member.member_id:
                del self._static_ids[member.instance_id]
        for partition in member.held_partitions():
            if change > 0:
                self._owners[partition] = member.member_id
            elif self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    # ── members ──────────────────────────────────────────────────────────────────────────────────────────────────

    def member(self, member_id: str) -> ConsumerMember:
        """The member; ApiError if there is none of that id."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(Error.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {self.group_id!r}")
        return member

    def static_id(self, instance_id: str | None) -> str | None:
        """The id of the member that has a `group.instance.id`."""
        return None if instance_id is None else self._static_ids.get(instance_id)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self.static_id(instance_id)
        return None if member_id is None else self.members[member_id]

    def checked_static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The static member; ApiError if there is none, or another process has taken its place."""
        member = self.static_member(instance_id)
        if member is None:
            raise ApiError(Error.UNKNOWN_MEMBER_ID, f"instance id {instance_id!r} is unknown")
        if member.member_id != member_id:
            raise ApiError(
                Error.FENCED_INSTANCE_ID,
                f"the static member {member_id!r} with instance id {instance_id!r} was fenced by {member.member_id!r}",
            )
        return member

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """Who has a partition and has not let go of it yet."""
        return self._owners.get((topic_id, partition))

    def speaks_all(self, protocol_names: Iterable[str]) -> bool:
        """Whether one of these protocols is one that every classic member here speaks."""
        return any(self._classic_protocol_counts[name] == self.classic_count for name in protocol_names)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition that the member is meant to get is still with somebody else."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            partition not in member.assigned.get(topic_id, ()) and (topic_id, partition) in self._owners
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    # ── as any group ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def listed_protocol_type(self) -> str:
        return "consumer"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def member_count(self) -> int:
        return len(self.members)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.name_counts or any(topic in topics for topics in self.patterns.values())

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int
    ) -> PartitionCheck | None:
        if epoch < 0 and not self.members:
            return None  # a tool, or a consumer that does not use groups
        if is_transactional and epoch == LEAVING_EPOCH and not member_id and instance_id is None:
            return None  # an older producer, which does not say who it reads for
        member = self.member(member_id)
        if not is_transactional and member.classic is None and version < COMMIT_WITH_EPOCHS_SINCE:
            raise ApiError(Error.UNSUPPORTED_VERSION, "members of the new protocol commit with version 9 or newer")
        stale = Error.STALE_MEMBER_EPOCH if member.classic is None else Error.ILLEGAL_GENERATION
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise ApiError(stale, f"epoch {epoch} is newer than the member's epoch {member.epoch}")

        def check(_topic: str, topic_id: UUID, partition: int) -> Error:
            since = member.held_since(topic_id, partition)
            return Error.NONE if since is not None and since <= epoch else stale

        return check

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            stale = Error.STALE_MEMBER_EPOCH if member.classic is None else Error.ILLEGAL_GENERATION
            raise ApiError(stale, f"epoch {epoch} is not the member's epoch {member.epoch}")

    def check_delete_offsets(self) -> None:
        """Those of topics that nobody reads can always go."""

    def check_delete(self) -> None:
        if self.members:
            raise ApiError(Error.NON_EMPTY_GROUP)

    def tombstones(self) -> list[StateRecord]:
        return group_tombstones(self.group_id, self.members, self.patterns)

    def expiry_base_ms(self, commit_ms: int) -> int | None:
        return commit_ms


def _add(counts: Counter[str], name: str, change: int) -> None:
    counts[name] += change
    if not counts[name]:
        del counts[name]
