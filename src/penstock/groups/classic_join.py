"""JoinGroup to a classic group: who is taken in, as whom, and what that sets off."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Moment, Step, Token
from penstock.groups.classic_group import ClassicGroup, ClassicMember, ClassicState, Protocols, protocols_bytes
from penstock.groups.classic_rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Rebalances,
    answer_join,
    answer_sync,
    joined,
    refuse_join,
)
from penstock.groups.table import Caller, GroupTable
from penstock.wire.messages.k11_join_group import JoinGroupRequest

KNOWN_MEMBER_ID_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
METADATA_BYTES_MAX = 16 << 20
"""what the members of one group say of themselves, all together: it is stored as one record"""
MEMBER_ID_PREFIX_LENGTH_MAX = 256
PROTOCOLS_MAX = 100


@dataclass(slots=True)
class Join:
    """One request to join, and the step that it becomes."""

    group: ClassicGroup
    token: Token
    request: JoinGroupRequest
    caller: Caller
    now: Moment
    step: Step

    @property
    def protocols(self) -> Protocols:
        return tuple((protocol.name, protocol.metadata) for protocol in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The first version of the request has none of its own."""
        timeout_ms = self.request.rebalance_timeout_ms
        return timeout_ms if timeout_ms >= 0 else self.request.session_timeout_ms

    def refuse(self, error: Error, member_id: str = "") -> None:
        refuse_join(self.token, error, self.step, member_id)


class Joins:
    """See the head of this file."""

    def __init__(self, table: GroupTable, rebalances: Rebalances) -> None:
        self._table = table
        self._rebalances = rebalances

    def decide(self, join: Join) -> None:
        """Take a member in, or say why not."""
        group, member_id = join.group, join.request.member_id
        if len(join.request.protocols) > PROTOCOLS_MAX:
            join.refuse(Error.INVALID_REQUEST, member_id)
        elif not self._has_room(join):
            self._refuse_for_size(join)
        elif not group.supports(join.request.protocol_type, join.protocols):
            join.refuse(Error.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif not member_id:
            self._join_new(join)
        elif member_id in group.pending_members and join.request.group_instance_id is None:
            self._add(join, member_id)
        else:
            self._join_again(join)

    # ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _has_room(self, join: Join) -> bool:
        """Members that are in stay in, as long as they join again before the group is full with others."""
        group, size_max = join.group, self._table.settings.size_max
        member = group.members.get(join.request.member_id)
        had_bytes = protocols_bytes(member.protocols) if member is not None else 0
        if group.metadata_bytes - had_bytes + protocols_bytes(join.protocols) > METADATA_BYTES_MAX:
            return False
        if not join.request.member_id and len(group.pending_members) >= size_max:
            return False
        if group.state is ClassicState.EMPTY:
            return True
        if group.state is ClassicState.PREPARING_REBALANCE:
            return (member is not None and member.join_token is not None) or group.waiting_to_join < size_max
        return member is not None or len(group.members) < size_max

    def _refuse_for_size(self, join: Join) -> None:
        group, member_id = join.group, join.request.member_id
        join.refuse(Error.GROUP_MAX_SIZE_REACHED)
        member = group.members.get(member_id)
        if member is not None:
            self._rebalances.remove(group, member, join.step)
            self._rebalances.rebalance(group, join.step, join.now)
        elif member_id in group.pending_members:
            self._rebalances.remove_pending(group, member_id, join.step, join.now)

    # ── new members ──────────────────────────────────────────────────────────────────────────────────────────────

    def _join_new(self, join: Join) -> None:
        """Somebody without a member id."""
        group, instance_id = join.group, join.request.group_instance_id
        prefix = join.caller.client_id if instance_id is None else instance_id
        member_id = f"{prefix[:MEMBER_ID_PREFIX_LENGTH_MAX]}-{self._table.new_uuid()}"
        existing_id = group.static_member_id(instance_id)
        if existing_id is not None:
            self._replace(join, group.members[existing_id], member_id)
        elif instance_id is None and join.caller.version >= KNOWN_MEMBER_ID_SINCE:
            group.pending_members.add(member_id)
            self._rebalances.expect(group, member_id, join.request.session_timeout_ms, join.now)
            join.refuse(Error.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(join, member_id)

    def _add(self, join: Join, member_id: str) -> None:
        group = join.group
        member = ClassicMember(
            member_id=member_id,
            instance_id=join.request.group_instance_id,
            client_id=join.caller.client_id,
            client_host=join.caller.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.request.session_timeout_ms,
            protocols=join.protocols,
            is_new=True,
        )
        if not group.members:
            group.protocol_type = join.request.protocol_type
        if group.state is ClassicState.PREPARING_REBALANCE and group.is_initial_rebalance:
            group.is_member_added = True
        group.add(member)
        group.wait_to_join(member, join.token)
        self._rebalances.expect(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, join.now)
        self._rebalances.rebalance(group, join.step, join.now)

    # ── members that join again ──────────────────────────────────────────────────────────────────────────────────

    def _join_again(self, join: Join) -> None:
        group, request = join.group, join.request
        try:
            group.check_member(request.member_id, request.group_instance_id)
        except ApiError as refused:
            join.refuse(refused.error, request.member_id)
            return
        member = group.members[request.member_id]
        is_joining = group.state is ClassicState.PREPARING_REBALANCE
        is_leading_stable = group.state is ClassicState.STABLE and member.member_id == group.leader_id
        if is_joining or is_leading_stable or member.protocols != join.protocols:
            # An older request of the member, if there is one, has been given up by its sender.
            answer_join(group, member, Error.REBALANCE_IN_PROGRESS, join.step, member.member_id)
            self._wait_for_the_others(join, member)
        else:
            # It did not get the answer, or had no reason to join again: it is in this generation as it is.
            join.step.answers.append((join.token, joined(group, member)))

    def _wait_for_the_others(self, join: Join, member: ClassicMember) -> None:
        group = join.group
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        group.wait_to_join(member, join.token)
        self._rebalances.rebalance(group, join.step, join.now)

    # ── static members that come back ────────────────────────────────────────────────────────────────────────────

    def _replace(self, join: Join, member: ClassicMember, member_id: str) -> None:
        """A static member started anew. While the group is stable that is no reason for a rebalance."""
        group, step, old_leader_id = join.group, join.step, join.group.leader_id
        self._rebalances.forget_session(group, member.member_id)
        answer_join(group, member, Error.FENCED_INSTANCE_ID, step, member.member_id)
        answer_sync(member, Error.FENCED_INSTANCE_ID, step)
        group.replace(member, member_id)
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        self._rebalances.heard_of(group, member, join.now)
        if group.state is not ClassicState.STABLE or group.choose_protocol() != group.protocol_name:
            self._wait_for_the_others(join, member)
            return
        step.records.append(group.record())
        answer = joined(group, member, skip_assignment=True)
        if join.caller.version < SKIP_ASSIGNMENT_SINCE:  # it cannot be told to lead without assigning, so it follows
            answer.leader, answer.members, answer.skip_assignment = old_leader_id or "", [], False
        step.answers.append((join.token, answer))
