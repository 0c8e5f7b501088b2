"""ConsumerGroupHeartbeat: how members of the new protocol join, stay, say what they want and hear what they get.

Epoch 0 joins, -1 leaves, -2 is a static member that will be back; any other is the epoch the member is in. A member
says everything when it joins and after a failure, and otherwise only what has changed; it is answered in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import uuid_to_text
from penstock.base.steps import Moment, StateRecord, Step, Token
from penstock.groups.consumer_change import MemberChange
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_groups import ConsumerGroups, Joined, Wait
from penstock.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerMember,
    Owned,
    is_subset,
)
from penstock.groups.consumer_records import member_tombstones, target_record
from penstock.groups.table import Caller
from penstock.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopic,
)

OWN_MEMBER_ID_SINCE = 1
"""from this version on members make up their own ids"""
SUBSCRIPTION_BYTES_MAX = 16 << 20
"""what the members of one group say of themselves, all together"""


class ConsumerHeartbeats:
    """See the head of this file."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups
        self._table = groups.table

    def heartbeat(self, token: Token, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Moment) -> Step:
        step = Step()
        try:
            check_request(request, caller.version, self._table.settings.consumer_assignors)
            if request.member_epoch < 0:
                response = self._leave(request, now, step)
            else:
                response = self._beat(request, caller, now, step)
        except ApiError as refused:
            answer = ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=refused.message)
            return Step(answers=[(token, answer)])
        step.answers.append((token, response))
        return step

    # ── joining and staying ──────────────────────────────────────────────────────────────────────────────────────

    def _beat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Moment, step: Step
    ) -> ConsumerGroupHeartbeatResponse:
        is_joining = request.member_epoch == JOINING_EPOCH
        joined = self._groups.to_join(request.group_id) if is_joining else Joined(self._group(request.group_id))
        group = joined.group
        check_size(group, request.member_id, self._table.settings.consumer_size_max)
        member_id = request.member_id or uuid_to_text(self._table.new_uuid())
        before, records = _known(group, request, member_id) if not is_joining else _joining(group, request, member_id)
        member = _updated(before, request, caller)
        is_stale = self._groups.sights.heard(group.group_id, member.topic_pattern, caller.sight)
        change = self._groups.change(group, before, member, now, is_pattern_stale=is_stale)
        check_subscription_size(change)
        change.subscribe()
        change.retarget()
        change.reconcile(_owned(request))

        self._groups.take_over(joined, now, step)
        step.records += records + change.records
        self._expect_more(group, before, change.member, now)
        static_id = group.static_id(request.instance_id)
        if static_id is not None and static_id != member_id:
            self._groups.forget(group, static_id)
        return self._answer(request, before, change.member)

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._table.of_kind(group_id, ConsumerGroup)
        if group is None:
            raise ApiError(Error.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}")
        return group

    def _expect_more(self, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember, now: Moment) -> None:
        """The next heartbeat; and if it must give something up, that it does so in time."""
        groups = self._groups
        groups.heard_of(group, member, now)
        groups.came(Wait.REJOIN, group, member.member_id)
        groups.came(Wait.SYNC, group, member.member_id)
        if not member.revoking:
            groups.came(Wait.REVOCATION, group, member.member_id)
        elif member.revoking != before.revoking or not groups.is_expected(Wait.REVOCATION, group, member.member_id):
            groups.expect(Wait.REVOCATION, group, member.member_id, member.rebalance_timeout_ms, now)

    def _answer(
        self, request: ConsumerGroupHeartbeatRequest, before: ConsumerMember, member: ConsumerMember
    ) -> ConsumerGroupHeartbeatResponse:
        assignment = None
        if request.member_epoch == JOINING_EPOCH or _is_full(request) or member.assigned != before.assigned:
            assignment = ConsumerGroupHeartbeatResponseAssignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatResponseTopic(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
                    for topic_id in sorted(member.assigned)
                ]
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._table.settings.consumer_heartbeat_interval_ms,
            assignment=assignment,
        )

    # ── leaving ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _leave(self, request: ConsumerGroupHeartbeatRequest, now: Moment, step: Step) -> ConsumerGroupHeartbeatResponse:
        group = self._group(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = group.checked_static_member(request.instance_id, request.member_id)
        if request.member_epoch == LEAVING_STATIC_EPOCH:
            step.records.append(_paused(member).assignment_record(group.group_id))
        else:
            self._groups.remove(group, [member], now, step)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """ApiError for what no group would take."""
    epoch = request.member_epoch
    needs_member_id = version >= OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVING_EPOCH
    problem = None
    if needs_member_id and not request.member_id.strip():
        problem = "MemberId can't be empty."
    elif not request.group_id.strip():
        problem = "GroupId can't be empty."
    elif request.instance_id is not None and not request.instance_id.strip():
        problem = "InstanceId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId can't be empty."
    elif epoch == JOINING_EPOCH:
        problem = _joining_problem(request)
    elif epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        problem = "InstanceId can't be null."
    elif epoch < LEAVING_STATIC_EPOCH:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise ApiError(Error.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            Error.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {request.server_assignor!r}; there are {', '.join(assignors)}",
        )


def _joining_problem(request: ConsumerGroupHeartbeatRequest) -> str | None:
    """Empty names or an empty pattern are fine: a member may read nothing."""
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def check_size(group: ConsumerGroup, member_id: str, size_max: int) -> None:
    """ApiError if the group is full and this would be one more."""
    if len(group.members) >= size_max and member_id not in group.members:
        raise ApiError(Error.GROUP_MAX_SIZE_REACHED, f"the group has {size_max} members, and may not have more")


def check_subscription_size(change: MemberChange) -> None:
    """ApiError if what the members say of themselves would take too much memory."""
    if change.member != change.before:
        growth = change.member.subscription_bytes - change.before.subscription_bytes
        if growth > 0 and change.group.subscription_bytes + growth > SUBSCRIPTION_BYTES_MAX:
            raise ApiError(Error.GROUP_MAX_SIZE_REACHED, "the subscriptions of the group's members take too much room")


def _known(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> tuple[ConsumerMember, list[StateRecord]]:
    """The member that sends a heartbeat; ApiError if it is fenced."""
    if request.instance_id is None:
        member = group.member(member_id)
    else:
        member = group.checked_static_member(request.instance_id, member_id)
    epoch = request.member_epoch
    owned = _owned(request)
    is_answer_lost = epoch == member.previous_epoch and owned is not None and is_subset(owned, member.assigned)
    if epoch > member.epoch or (epoch < member.epoch and not is_answer_lost):
        raise ApiError(
            Error.FENCED_MEMBER_EPOCH,
            f"the member is in epoch {member.epoch} and says {epoch}: it must give up its partitions and join again",
        )
    return member, []


def _joining(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> tuple[ConsumerMember, list[StateRecord]]:
    """A new member, one that was fenced and comes again, or a static one that comes back; and what replaces that."""
    existing = group.static_member(request.instance_id)
    if existing is not None and existing.member_id == member_id and existing.epoch != LEAVING_STATIC_EPOCH:
        existing = None  # the same process again: it was fenced, or the answer to its joining was lost
    if existing is None:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id), []
    if existing.classic is None and existing.epoch != LEAVING_STATIC_EPOCH:
        raise ApiError(
            Error.UNRELEASED_INSTANCE_ID,
            f"the instance id {request.instance_id!r} belongs to the member {existing.member_id!r}, which has not left",
        )
    return replaced(group, existing, member_id)


def replaced(
    group: ConsumerGroup, existing: ConsumerMember, member_id: str
) -> tuple[ConsumerMember, list[StateRecord]]:
    """A static member under its new id, with all it had."""
    member = replace(existing, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    return member, [
        *member_tombstones(group.group_id, existing.member_id),
        member.subscription_record(group.group_id),
        target_record(group.group_id, member_id, group.targets.get(existing.member_id, {})),
        member.assignment_record(group.group_id),
    ]


def _updated(before: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerMember:
    """What is not in the request has not changed."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    rebalance_timeout_ms = request.rebalance_timeout_ms
    return replace(
        before,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=before.topic_names if names is None else frozenset(names),
        topic_pattern=before.topic_pattern if pattern is None else pattern,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    return [(each.topic_id, each.partitions) for each in request.topic_partitions]


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it says everything, as after a failure: then it is told everything, too."""
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and has_subscription and request.topic_partitions is not None


def _paused(member: ConsumerMember) -> ConsumerMember:
    """A static member that will be back: what it has waits for it, and may then be committed from the start."""
    assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
    return replace(member, epoch=LEAVING_STATIC_EPOCH, assigned=assigned, revoking={})
