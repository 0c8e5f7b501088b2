"""Members of a consumer group that still speak the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

To them the group looks like a classic one whose rebalances are over at once. The member epoch is their generation;
JoinGroup is a heartbeat that says everything, and is answered without waiting for anybody; SyncGroup gives them what
the broker has assigned. A Heartbeat tells them to join again when there is something to give up or to get.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import uuid_to_text
from penstock.base.steps import Moment, StateRecord, Step, Token
from penstock.groups.classic_group import CONSUMER_PROTOCOL_TYPE
from penstock.groups.classic_join import KNOWN_MEMBER_ID_SINCE
from penstock.groups.consumer_change import MemberChange
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_groups import ConsumerGroups, Wait
from penstock.groups.consumer_heartbeat import check_size, check_subscription_size, replaced
from penstock.groups.consumer_member import ClassicSpeaker, ConsumerMember, MemberState
from penstock.groups.conversion import downgraded, generation_after_downgrade, may_downgrade
from penstock.groups.embedded_protocol import owned_partitions, read_subscription, write_assignment
from penstock.groups.table import Caller
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
)
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.schema import ProtocolError


class ClassicSpeakers:
    """See the head of this file."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups
        self._table = groups.table

    # ── JoinGroup ────────────────────────────────────────────────────────────────────────────────────────────────

    def join_group(
        self, group: ConsumerGroup, token: Token, request: JoinGroupRequest, caller: Caller, now: Moment
    ) -> Step:
        """To a consumer group that has members."""
        step = Step()
        try:
            step.answers.append((token, self._join(group, request, caller, now, step)))
        except ApiError as refused:
            return Step(answers=[(token, JoinGroupResponse(error_code=refused.error, protocol_name=None))])
        return step

    def _join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now: Moment, step: Step
    ) -> JoinGroupResponse:
        member_id = request.member_id or uuid_to_text(self._table.new_uuid())
        subscription = self._checked_subscription(group, request, member_id)
        is_new = not request.member_id
        if is_new and request.group_instance_id is None and caller.version >= KNOWN_MEMBER_ID_SINCE:
            return JoinGroupResponse(error_code=Error.MEMBER_ID_REQUIRED, member_id=member_id, protocol_name=None)
        before, records = _joining(group, request.group_instance_id, member_id, is_new=is_new)
        existing = group.static_member(request.group_instance_id)
        change = self._groups.change(group, before, _updated(before, request, subscription, caller), now)
        check_subscription_size(change)
        change.subscribe()
        if existing is not None and existing.classic is None and self._may_downgrade(group, existing):
            member = self._downgrade(change, existing, now)
        else:
            change.retarget()
            change.reconcile(owned_partitions(subscription, self._table.topics))
            member = change.member
            self._expect_sync(group, member, request, now)
        step.records += records + change.records
        if existing is not None and existing.member_id != member_id:
            self._groups.forget(group, existing.member_id)
        assert member.classic is not None
        return JoinGroupResponse(
            member_id=member_id,
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=member.classic.protocols[0][0],
        )

    def _checked_subscription(
        self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str
    ) -> ConsumerProtocolSubscription:
        """What a member wants that may join; ApiError if it may not."""
        settings = self._table.settings
        if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
            raise ApiError(Error.INVALID_SESSION_TIMEOUT)
        if not settings.may_mix:
            raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
        check_size(group, member_id, settings.consumer_size_max)
        names = [protocol.name for protocol in request.protocols]
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.speaks_all(names):
            raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
        try:
            return read_subscription(bytes(request.protocols[0].metadata))
        except ProtocolError:
            raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL) from None

    def _may_downgrade(self, group: ConsumerGroup, leaving: ConsumerMember) -> bool:
        return may_downgrade(group, self._table.settings, [leaving], joining_count=1)

    def _downgrade(self, change: MemberChange, leaving: ConsumerMember, now: Moment) -> ConsumerMember:
        """It takes the place of the last member of the new protocol: the group is a classic one from now on."""
        group = change.group
        change.records += downgraded(group, [leaving], change.member, self._table.topics, now)
        self._groups.forget_all(group)
        staying = [member for member in group.members.values() if member is not leaving]
        return replace(change.member, epoch=generation_after_downgrade(staying))

    def _expect_sync(
        self, group: ConsumerGroup, member: ConsumerMember, request: JoinGroupRequest, now: Moment
    ) -> None:
        self._groups.heard_of(group, member, now)
        self._groups.came(Wait.REVOCATION, group, member.member_id)
        self._groups.came(Wait.REJOIN, group, member.member_id)
        self._groups.expect(Wait.SYNC, group, member.member_id, _rebalance_timeout_ms(request), now)

    # ── SyncGroup ────────────────────────────────────────────────────────────────────────────────────────────────

    def sync_group(self, group: ConsumerGroup, token: Token, request: SyncGroupRequest, now: Moment) -> Step:
        try:
            answer = self._sync(group, request, now)
        except ApiError as refused:
            answer = SyncGroupResponse(error_code=refused.error)
        return Step(answers=[(token, answer)])

    def _sync(self, group: ConsumerGroup, request: SyncGroupRequest, now: Moment) -> SyncGroupResponse:
        member, classic = _speaker(group, request.member_id, request.group_instance_id, request.generation_id)
        name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_to_join_again(group, member, now)
            raise ApiError(Error.REBALANCE_IN_PROGRESS)
        self._groups.came(Wait.SYNC, group, member.member_id)
        self._groups.heard_of(group, member, now)
        assigned = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(assigned, self._table.topics, metadata),
        )

    # ── Heartbeat ────────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, group: ConsumerGroup, token: Token, request: HeartbeatRequest, now: Moment) -> Step:
        step = Step()
        error = Error.NONE
        try:
            member, _ = _speaker(group, request.member_id, request.group_instance_id, request.generation_id)
            self._groups.heard_of(group, member, now)
            change = self._groups.change(group, member, member, now)
            change.retarget()  # there may be nobody else who does it
            step.records += change.records
            is_released = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
            is_behind = member.epoch < change.target.epoch
            if is_behind or is_released or member.state is MemberState.UNREVOKED_PARTITIONS:
                error = Error.REBALANCE_IN_PROGRESS
                self._expect_to_join_again(group, member, now)
        except ApiError as refused:
            error = refused.error
        step.answers.append((token, HeartbeatResponse(error_code=error)))
        return step

    def _expect_to_join_again(self, group: ConsumerGroup, member: ConsumerMember, now: Moment) -> None:
        if not self._groups.is_expected(Wait.REJOIN, group, member.member_id):
            self._groups.expect(Wait.REJOIN, group, member.member_id, member.rebalance_timeout_ms, now)

    # ── LeaveGroup ───────────────────────────────────────────────────────────────────────────────────────────────

    def leave_group(self, group: ConsumerGroup, token: Token, request: LeaveGroupRequest, now: Moment) -> Step:
        """Members of either protocol: a tool removes them with this, too."""
        step = Step()
        leaving: dict[str, ConsumerMember] = {}
        responses = []
        for each in request.members:
            error = Error.NONE
            try:
                member = _leaver(group, each)
                leaving[member.member_id] = member
            except ApiError as refused:
                error = refused.error
            responses.append(
                LeaveGroupResponseMember(
                    member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error
                )
            )
        self._groups.remove(group, leaving.values(), now, step)
        step.answers.append((token, LeaveGroupResponse(members=responses)))
        return step


def _joining(
    group: ConsumerGroup, instance_id: str | None, member_id: str, *, is_new: bool
) -> tuple[ConsumerMember, list[StateRecord]]:
    """Who joins, and what is written if it takes the place of another."""
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id), []
    if not is_new:
        return group.checked_static_member(instance_id, member_id), []
    existing = group.static_member(instance_id)
    if existing is None:
        return ConsumerMember(member_id=member_id), []
    return replaced(group, existing, member_id)


def _updated(
    before: ConsumerMember, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, caller: Caller
) -> ConsumerMember:
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    return replace(
        before,
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        topic_names=frozenset(subscription.topics),
        topic_pattern="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicSpeaker(request.session_timeout_ms, protocols),
    )


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """The first version of the request has none of its own."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _speaker(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicSpeaker]:
    """A member that speaks the classic protocol and is in this generation; ApiError if there is none."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = group.checked_static_member(instance_id, member_id)
    if member.classic is None:
        raise ApiError(Error.UNKNOWN_MEMBER_ID)
    if generation != member.epoch:
        raise ApiError(Error.ILLEGAL_GENERATION)
    return member, member.classic


def _leaver(group: ConsumerGroup, leaving: LeaveGroupRequestMember) -> ConsumerMember:
    """Tools throw static members out by their instance ids alone."""
    if leaving.group_instance_id is None:
        return group.member(leaving.member_id)
    member_id = leaving.member_id or group.static_id(leaving.group_instance_id) or ""
    return group.checked_static_member(leaving.group_instance_id, member_id)
