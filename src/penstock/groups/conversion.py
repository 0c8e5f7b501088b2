"""Groups that change their kind while they have members.

A classic group of consumers becomes a consumer group when somebody joins it with the new protocol: its members stay, go
on speaking the classic protocol, and are meant to have what they have. It becomes a classic group again when the last
member of the new protocol is gone: the others keep what they are meant to have until they have joined again.

Both are nothing but records, written in one batch: what the group was is deleted, what it is now is written. Offsets
are not touched.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Moment, StateRecord
from penstock.groups.assignors import Assignment
from penstock.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicMember, ClassicState
from penstock.groups.consumer_group import FIRST_EPOCH, ConsumerGroup
from penstock.groups.consumer_member import ClassicSpeaker, ConsumerMember
from penstock.groups.consumer_records import epoch_record, group_tombstones, target_epoch_record, target_record
from penstock.groups.consumer_targets import metadata_hash
from penstock.groups.embedded_protocol import read_assignment, read_subscription, write_assignment
from penstock.groups.settings import GroupSettings
from penstock.groups.table import Topics
from penstock.wire.schema import ProtocolError

# ── from classic to consumer ─────────────────────────────────────────────────────────────────────────────────────────


def check_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    """ApiError if the group must stay what it is."""
    problem = None
    if not settings.may_upgrade:
        problem = "group.consumer.migration.policy does not allow it"
    elif not group.is_of_consumers:
        problem = "it is not a group of consumers"
    elif len(group.members) > settings.consumer_size_max:
        problem = "it has more members than group.consumer.max.size"
    if problem is not None:
        raise ApiError(Error.GROUP_ID_NOT_FOUND, f"group {group.group_id!r} cannot become a consumer group: {problem}")


def upgraded(group: ClassicGroup, topics: Topics) -> list[StateRecord]:
    """The records that make a classic group a consumer group; ApiError if its members say what we cannot read."""
    group_id = group.group_id
    epoch = max(group.generation, FIRST_EPOCH)
    taken: set[tuple[UUID, int]] = set()
    try:
        members = [_upgraded_member(group, member, epoch, topics, taken) for member in group.members.values()]
    except ProtocolError as error:
        raise ApiError(
            Error.GROUP_ID_NOT_FOUND, f"group {group_id!r} cannot become a consumer group: {error}"
        ) from error
    names = frozenset().union(*(member.topic_names for member in members))
    return [
        *group.tombstones(),
        *(member.subscription_record(group_id) for member in members),
        epoch_record(group_id, epoch, metadata_hash(names, topics)),
        *(target_record(group_id, member.member_id, _held_partitions(member)) for member in members),
        target_epoch_record(group_id, epoch, 0),
        *(member.assignment_record(group_id) for member in members),
    ]


def _upgraded_member(
    group: ClassicGroup, member: ClassicMember, epoch: int, topics: Topics, taken: set[tuple[UUID, int]]
) -> ConsumerMember:
    """One that joined after the last rebalance may not know the protocol that was chosen there."""
    subscription = read_subscription(member.metadata(group.protocol_name) or member.protocols[0][1])
    return ConsumerMember(
        member_id=member.member_id,
        epoch=epoch,
        previous_epoch=epoch,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        classic=ClassicSpeaker(member.session_timeout_ms, member.protocols),
        assigned=_upgraded_assignment(member.assignment, epoch, topics, taken),
    )


def _upgraded_assignment(
    assignment: bytes, epoch: int, topics: Topics, taken: set[tuple[UUID, int]]
) -> dict[UUID, dict[int, int]]:
    """What the leader gave to a member, without what is not there and what it gave to another one too."""
    if not assignment:
        return {}  # it has joined, and has not been told its part yet
    message = read_assignment(assignment)
    if message.user_data:
        raise ProtocolError("an assignor of its own gives its members more than partitions, and that would be lost")
    assigned: dict[UUID, dict[int, int]] = {}
    for each in message.assigned_partitions:
        topic = topics.named(each.topic)
        if topic is None:
            continue
        for index in each.partitions:
            if 0 <= index < topic.partition_count and (topic.topic_id, index) not in taken:
                taken.add((topic.topic_id, index))
                assigned.setdefault(topic.topic_id, {})[index] = epoch
    return assigned


def _held_partitions(member: ConsumerMember) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}


# ── from consumer to classic ─────────────────────────────────────────────────────────────────────────────────────────


def may_downgrade(
    group: ConsumerGroup, settings: GroupSettings, leaving: Collection[ConsumerMember], *, joining_count: int = 0
) -> bool:
    """Whether only members of the classic protocol are left when some leave, and the group may become theirs."""
    left = len(group.members) - len(leaving)
    left_classic = group.classic_count - sum(member.classic is not None for member in leaving)
    size = left + joining_count
    return left == left_classic and 0 < size <= settings.size_max and settings.may_downgrade


def downgraded(
    group: ConsumerGroup,
    leaving: Collection[ConsumerMember],
    joining: ConsumerMember | None,
    topics: Topics,
    now: Moment,
) -> list[StateRecord]:
    """The records that make a consumer group a classic one.

    A static member that joins in the place of one that leaves has its target.
    """
    leaving_ids = {member.member_id for member in leaving}
    staying = [member for member in group.members.values() if member.member_id not in leaving_ids]
    targets = {member.member_id: group.targets.get(member.member_id, {}) for member in staying}
    if joining is not None:
        replaced_id = group.static_id(joining.instance_id) or joining.member_id
        staying.append(joining)
        targets[joining.member_id] = group.targets.get(replaced_id, {})
    classic = ClassicGroup(group.group_id)
    classic.generation = group.epoch
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in staying:
        classic.add(_downgraded_member(member))
    classic.protocol_name = classic.choose_protocol()
    for each in classic.members.values():
        metadata = each.metadata(classic.protocol_name)
        each.assignment = write_assignment(targets[each.member_id], topics, metadata)
    classic.enter(ClassicState.STABLE, now.wall_ms)
    member_ids = {*group.members, *targets}
    return [*group_tombstones(group.group_id, sorted(member_ids), group.patterns), classic.record()]


def _downgraded_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.protocols,
    )
