"""ConsumerGroupDescribe: a consumer group as tools show it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from uuid import UUID

from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.table import Topics
from penstock.wire.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupDescribeResponseTopic,
)

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def described(group: ConsumerGroup, assignors: tuple[str, ...], topics: Topics) -> ConsumerGroupDescribeResponseGroup:
    """Everything that is known of a group and its members."""
    assignor = max(assignors, key=lambda name: group.assignor_counts[name])
    return ConsumerGroupDescribeResponseGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> ConsumerGroupDescribeResponseMember:
    """What it must give up is shown as well: it answers for it until it has let go."""
    held: dict[UUID, set[int]] = {}
    for topic_id, partition in member.held_partitions():
        held.setdefault(topic_id, set()).add(partition)
    return ConsumerGroupDescribeResponseMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_pattern,
        assignment=_assignment(held, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[UUID, Set[int]], topics: Topics) -> ConsumerGroupDescribeResponseAssignment:
    """Topics that are gone have no names, and are left out."""
    rows = [
        ConsumerGroupDescribeResponseTopic(topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes))
        for topic_id, indexes in partitions.items()
        if (topic := topics.with_id(topic_id)) is not None
    ]
    return ConsumerGroupDescribeResponseAssignment(topic_partitions=sorted(rows, key=lambda row: row.topic_name))
