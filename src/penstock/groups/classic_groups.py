"""The classic groups of a shard: what their members ask, and what the log says of them."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Moment, StateRecord, Step, Token
from penstock.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.classic_join import Join, Joins
from penstock.groups.classic_rebalance import Rebalances, answer_sync, assigned, refuse_join
from penstock.groups.table import Caller, GroupTable
from penstock.wire.messages.k11_join_group import JoinGroupRequest
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
)
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.messages.k15_describe_groups import DescribeGroupsResponseGroup, DescribeGroupsResponseMember
from penstock.wire.messages.offsets_topic_records import GroupMetadataKey

ASSIGNMENT_BYTES_MAX = 16 << 20
"""of one generation, all members together: it is stored as one record"""


class ClassicGroups:
    """See the head of this file."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._rebalances = Rebalances(table)
        self._joins = Joins(table, self._rebalances)
        self._is_serving = False
        self._newly_classic: list[ClassicGroup] = []

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: StateRecord) -> None:
        """What is kept of a group. While it is served, a group is ahead of its records, which say what it decided."""
        assert isinstance(record.key, GroupMetadataKey)
        group = self._table.of_kind(record.key.group, ClassicGroup)
        if record.value is None:
            if group is not None:
                self._rebalances.forget(group)
                self._table.remove(group)
        elif group is None or not self._is_serving:
            group = ClassicGroup.from_record(record.key.group, record.value)
            self._table.put(group)
            if record.value.members and record.value.leader is None:
                self._newly_classic.append(group)

    def start(self, now: Moment, step: Step) -> None:
        """The log has been read: every member has a whole session to make itself heard."""
        self._is_serving = True
        for group in self._table:
            if isinstance(group, ClassicGroup):
                self._begin_sessions(group, now)
                if len(group.members) > self._table.settings.size_max:
                    self._rebalances.prepare(group, step, now)

    def _begin_sessions(self, group: ClassicGroup, now: Moment) -> None:
        for member in group.members.values():
            self._rebalances.heard_of(group, member, now)

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_deadline_ms(self) -> int | None:
        return 0 if self._newly_classic else self._rebalances.next_deadline_ms()

    def on_time(self, now: Moment, step: Step) -> None:
        for group in self._newly_classic:
            if self._table.get(group.group_id) is group and group.state is ClassicState.STABLE:
                self._begin_sessions(group, now)
                self._rebalances.prepare(group, step, now)
        self._newly_classic.clear()
        self._rebalances.on_time(now, step)

    def heard_of(self, group: ClassicGroup, member_id: str, now: Moment) -> None:
        """A member did something else than a heartbeat, which shows as well that it lives."""
        member = group.members.get(member_id)
        if member is not None and group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            self._rebalances.heard_of(group, member, now)

    def let_go(self, group: ClassicGroup, step: Step) -> None:
        """The group is about to become one of another kind, by the records of this step."""
        self._rebalances.let_go(group, step)

    # ── JoinGroup ────────────────────────────────────────────────────────────────────────────────────────────────

    def join_group(self, token: Token, request: JoinGroupRequest, caller: Caller, now: Moment) -> Step:
        """To a classic group, or to one that is made by this."""
        step = Step()
        settings = self._table.settings
        group = self._table.of_kind(request.group_id, ClassicGroup)
        if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
            refuse_join(token, Error.INVALID_SESSION_TIMEOUT, step, request.member_id)
        elif group is None and request.member_id:
            refuse_join(token, Error.UNKNOWN_MEMBER_ID, step, request.member_id)
        else:
            if group is None:
                group = ClassicGroup(request.group_id)
                group.state_since_ms = now.wall_ms
                self._table.put(group)
            self._joins.decide(Join(group, token, request, caller, now, step))
        return step

    # ── SyncGroup ────────────────────────────────────────────────────────────────────────────────────────────────

    def sync_group(self, group: ClassicGroup, token: Token, request: SyncGroupRequest, now: Moment) -> Step:
        try:
            self._check_sync(group, request)
        except ApiError as refused:
            return Step(answers=[(token, SyncGroupResponse(error_code=refused.error))])
        member = group.members[request.member_id]
        self._rebalances.synced(group, member.member_id)
        if group.state is ClassicState.STABLE:
            return Step(answers=[(token, assigned(group, member))])
        step = Step()
        answer_sync(member, Error.REBALANCE_IN_PROGRESS, step)
        member.sync_token = token
        if member.member_id == group.leader_id:
            self._assign(group, request, step, now)
        return step

    def _check_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise ApiError(Error.ILLEGAL_GENERATION)
        for asked, actual in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if asked is not None and actual is not None and asked != actual:
                raise ApiError(Error.INCONSISTENT_GROUP_PROTOCOL)
        if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            raise ApiError(Error.REBALANCE_IN_PROGRESS)
        if sum(len(each.assignment) for each in request.assignments) > ASSIGNMENT_BYTES_MAX:
            raise ApiError(Error.INVALID_REQUEST)

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest, step: Step, now: Moment) -> None:
        """The leader has decided who reads what: everybody is told as soon as that is kept."""
        assignment_of = {each.member_id: each.assignment for each in request.assignments}
        for member in group.members.values():
            member.assignment = assignment_of.get(member.member_id, b"")
        group.enter(ClassicState.STABLE, now.wall_ms)
        step.records.append(group.record())
        for member in group.members.values():
            if member.sync_token is not None:
                step.answers.append((member.sync_token, assigned(group, member)))
                member.sync_token = None
                self._rebalances.heard_of(group, member, now)

    # ── Heartbeat ────────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, group: ClassicGroup, token: Token, request: HeartbeatRequest, now: Moment) -> Step:
        error = Error.NONE
        try:
            group.check_member(request.member_id, request.group_instance_id)
            if request.generation_id != group.generation:
                raise ApiError(Error.ILLEGAL_GENERATION)
            self._rebalances.heard_of(group, group.members[request.member_id], now)
            if group.state is ClassicState.PREPARING_REBALANCE:
                error = Error.REBALANCE_IN_PROGRESS
        except ApiError as refused:
            error = refused.error
        return Step(answers=[(token, HeartbeatResponse(error_code=error))])

    # ── LeaveGroup ───────────────────────────────────────────────────────────────────────────────────────────────

    def leave_group(self, group: ClassicGroup, token: Token, request: LeaveGroupRequest, now: Moment) -> Step:
        step = Step()
        responses = []
        member_count = len(group.members)
        for leaving in request.members:
            error = self._leave(group, leaving, step)
            responses.append(
                LeaveGroupResponseMember(
                    member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error_code=error
                )
            )
        step.answers.append((token, LeaveGroupResponse(members=responses)))
        if len(group.members) < member_count:
            self._rebalances.rebalance(group, step, now)
        else:
            self._rebalances.complete_join_if_all_are_here(group, step, now)
        return step

    def _leave(self, group: ClassicGroup, leaving: LeaveGroupRequestMember, step: Step) -> Error:
        try:
            if leaving.member_id in group.pending_members:
                self._rebalances.forget_session(group, leaving.member_id)
                group.pending_members.discard(leaving.member_id)
            else:
                self._rebalances.remove(group, self._leaver(group, leaving), step)
        except ApiError as refused:
            return refused.error
        return Error.NONE

    @staticmethod
    def _leaver(group: ClassicGroup, leaving: LeaveGroupRequestMember) -> ClassicMember:
        """Tools throw static members out by their instance ids alone."""
        member_id = leaving.member_id or group.static_member_id(leaving.group_instance_id) or ""
        group.check_member(member_id, leaving.group_instance_id)
        return group.members[member_id]

    # ── DescribeGroups ───────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def describe(group: ClassicGroup) -> DescribeGroupsResponseGroup:
        """What members said to the assignor is told of a stable group only; what they were given, of every one."""
        is_stable = group.state is ClassicState.STABLE
        members = [
            DescribeGroupsResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ]
        return DescribeGroupsResponseGroup(
            group_id=group.group_id,
            group_state=group.state_name,
            protocol_type=group.listed_protocol_type,
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=members,
        )
