"""Groups that change their kind while they have members.

A classic group of consumers becomes a consumer group when somebody joins it with the new protocol: its members stay, go
on speaking the classic protocol, and are meant to have what they have. It becomes a classic group again when the last
member of the new protocol is gone: the others keep what they have until they have joined again.

Both are nothing but records, written in one batch: what the group was is deleted, what it is now is written. Offsets
are not touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Moment, StateRecord
from penstock.groups.assignors import Assignment
from penstock.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicMember, ClassicState
from penstock.groups.consumer_group import FIRST_EPOCH, ConsumerGroup
from penstock.groups.consumer_member import ClassicSpeaker, ConsumerMember, Held, MemberState
from penstock.groups.consumer_records import epoch_record, group_tombstones, target_epoch_record, target_record
from penstock.groups.consumer_targets import metadata_hash
from penstock.groups.embedded_protocol import read_assignment, read_subscription, write_assignment
from penstock.groups.settings import GroupSettings
from penstock.groups.table import Topics
from penstock.wire.schema import ProtocolError

ORDINARY_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""of which it is known that what they tell members beside their partitions is only what they remember by it"""

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
    try:
        members = _upgraded_members(group, epoch, topics)
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


def _upgraded_members(group: ClassicGroup, epoch: int, topics: Topics) -> list[ConsumerMember]:
    """All members with what they have.

    That is what the leader gave them, and then what they said they owned when they joined: one that reads on through
    rebalances may not have heard yet that it must give something up, and nobody gets that before it says that it has.
    """
    taken: set[tuple[UUID, int]] = set()
    subscriptions = [read_subscription(_metadata(group, member)) for member in group.members.values()]
    given = [_given(group, member, topics) for member in group.members.values()]
    assigned = [_first_taken(each, taken, epoch) for each in given]
    revoking = [_first_taken(_existing(each.owned_partitions, topics), taken, epoch) for each in subscriptions]
    return [
        ConsumerMember(
            member_id=member.member_id,
            epoch=epoch,
            previous_epoch=epoch,
            state=MemberState.UNREVOKED_PARTITIONS if revoking[number] else MemberState.STABLE,
            instance_id=member.instance_id,
            rack_id=subscriptions[number].rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(subscriptions[number].topics),
            classic=ClassicSpeaker(member.session_timeout_ms, member.protocols),
            assigned=assigned[number],
            revoking=revoking[number],
        )
        for number, member in enumerate(group.members.values())
    ]


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    """One that joined after the last rebalance may not know the protocol that was chosen there."""
    return member.metadata(group.protocol_name) or member.protocols[0][1]


def _given(group: ClassicGroup, member: ClassicMember, topics: Topics) -> list[tuple[UUID, int]]:
    """What the leader gave to a member."""
    if not member.assignment:
        return []  # it has joined, and has not been told its part yet
    message = read_assignment(member.assignment)
    if message.user_data and group.protocol_name not in ORDINARY_ASSIGNORS:
        raise ProtocolError("an assignor of its own gives its members more than partitions, and that would be lost")
    return _existing(message.assigned_partitions, topics)


class _NamedPartitions(Protocol):
    topic: str
    partitions: list[int]


def _existing(named: Iterable[_NamedPartitions], topics: Topics) -> list[tuple[UUID, int]]:
    return [
        (topic.topic_id, index)
        for each in named
        if (topic := topics.named(each.topic)) is not None
        for index in each.partitions
        if 0 <= index < topic.partition_count
    ]


def _first_taken(partitions: Iterable[tuple[UUID, int]], taken: set[tuple[UUID, int]], epoch: int) -> Held:
    """Those that nobody had before; leaders may give one to two members, but here it has one owner."""
    held: dict[UUID, dict[int, int]] = {}
    for topic_id, index in partitions:
        if (topic_id, index) not in taken:
            taken.add((topic_id, index))
            held.setdefault(topic_id, {})[index] = epoch
    return held


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


def generation_after_downgrade(staying: Iterable[ConsumerMember]) -> int:
    """That of the members that have come furthest: they can commit what they have read before they join again."""
    return max(FIRST_EPOCH, *(member.epoch for member in staying))


def downgraded(
    group: ConsumerGroup,
    leaving: Collection[ConsumerMember],
    joining: ConsumerMember | None,
    topics: Topics,
    now: Moment,
) -> list[StateRecord]:
    """The records that make a consumer group a classic one; one may join in the place of a static one that leaves.

    Everybody is said to have what it has, not what it is meant to have: somebody else may still have that.
    """
    leaving_ids = {member.member_id for member in leaving}
    staying = {member_id: member for member_id, member in group.members.items() if member_id not in leaving_ids}
    if joining is not None:
        staying[joining.member_id] = joining
    classic = ClassicGroup(group.group_id)
    classic.generation = generation_after_downgrade(staying.values())
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in staying.values():
        classic.add(_downgraded_member(member))
    classic.protocol_name = classic.choose_protocol()
    for each in classic.members.values():
        has = _held_partitions(staying[each.member_id])
        each.assignment = write_assignment(has, topics, each.metadata(classic.protocol_name))
    classic.enter(ClassicState.STABLE, now.wall_ms)
    classic.leader_id = None  # so that it begins with a rebalance, also if it is read from the log first
    member_ids = sorted({*group.members, *staying})
    return [*group_tombstones(group.group_id, member_ids, group.patterns), classic.record()]


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
