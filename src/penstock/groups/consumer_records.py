"""The records of consumer groups, but for those of a member, which it makes itself.

A group is: its epoch (3), the subscription of each member (5), the target and its epoch (7, 6), what each member has
(8) and what each pattern stands for (16). Releases of Kafka before 4.1 also kept the partitions of topics (4); such a
record is deleted when it is met.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.base.steps import StateRecord
from penstock.groups.assignors import Assignment
from penstock.wire.messages.offsets_topic_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMemberValueTopicPartition,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> StateRecord:
    """The group's epoch, and what it knew of its topics then."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return StateRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> StateRecord:
    topics = [
        ConsumerGroupTargetAssignmentMemberValueTopicPartition(topic_id=topic_id, partitions=sorted(target[topic_id]))
        for topic_id in sorted(target)
    ]
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)
    return StateRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    found: dict[UUID, frozenset[int]] = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
    return found


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> StateRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return StateRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def pattern_record(group_id: str, pattern: str, topics: Iterable[str], wall_ms: int) -> StateRecord:
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=0, timestamp=wall_ms)
    return StateRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), value)


def pattern_tombstone(group_id: str, pattern: str) -> StateRecord:
    return StateRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)


def partition_metadata_tombstone(group_id: str) -> StateRecord:
    return StateRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[StateRecord]:
    """First what it has, last who it is: whoever reads on the way sees no member without a subscription."""
    return [
        StateRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        StateRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        StateRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str], patterns: Iterable[str]) -> list[StateRecord]:
    """Everything that is kept of a group, in the order in which Kafka wants to see it go."""
    member_ids = list(member_ids)
    return [
        *(
            StateRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
            for member_id in member_ids
        ),
        *(
            StateRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
            for member_id in member_ids
        ),
        StateRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(
            StateRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
            for member_id in member_ids
        ),
        *(pattern_tombstone(group_id, pattern) for pattern in patterns),
        partition_metadata_tombstone(group_id),
        StateRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
