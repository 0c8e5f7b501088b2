"""How a classic group gets from one generation to the next, and whom it loses on the way.

A rebalance begins when somebody comes, goes or changes (`prepare`). Members learn of it from their heartbeats and send
JoinGroup, which waits. It goes on (`complete_join`) when everybody has joined, or after the longest rebalance timeout
of the members; dynamic members that have not joined by then are out, static ones stay. The first rebalance of an empty
group waits a little for others to come. Then the members have as long again to ask for their part of the assignment.

Every function adds what is to be written and answered to a step. Deadlines: the session of each member, the end of
the joining, and the end of the asking for assignments.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from penstock.base.deadlines import Deadlines
from penstock.base.errors import Error
from penstock.base.steps import Moment, Step, Token
from penstock.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.table import GroupTable
from penstock.wire.messages.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.wire.messages.k14_sync_group import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""a member without an id sends no heartbeats; if its connection is lost while it waits, this ends its wait"""

WAIT_AGAIN_MS_MIN = 1000
"""members that want no time for a rebalance are not asked for it without a pause"""

SETTLED = (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE)


class Wait(Enum):
    """What a deadline is the end of."""

    SESSION = auto()
    JOIN = auto()
    SYNC = auto()


class Timer(NamedTuple):
    wait: Wait
    group_id: str
    member_id: str = ""


class Rebalances:
    """See the head of this file."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._deadlines: Deadlines[Timer] = Deadlines()

    # ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def heard_of(self, group: ClassicGroup, member: ClassicMember, now: Moment) -> None:
        """The member lives: its session begins anew."""
        self.expect(group, member.member_id, member.session_timeout_ms, now)

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int, now: Moment) -> None:
        """Whoever has this id is out if nothing is heard of it in this time."""
        self._deadlines.set(Timer(Wait.SESSION, group.group_id, member_id), now.monotonic_ms + timeout_ms)

    def forget_session(self, group: ClassicGroup, member_id: str) -> None:
        self._deadlines.clear(Timer(Wait.SESSION, group.group_id, member_id))

    def forget(self, group: ClassicGroup) -> None:
        """The group is gone."""
        for wait in (Wait.JOIN, Wait.SYNC):
            self._deadlines.clear(Timer(wait, group.group_id))
        for member_id in (*group.members, *group.pending_members):
            self.forget_session(group, member_id)

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def on_time(self, now: Moment, step: Step) -> None:
        """Do what is due."""
        for timer in self._deadlines.due(now.monotonic_ms):
            group = self._table.of_kind(timer.group_id, ClassicGroup)
            if group is None:
                continue
            if timer.wait is Wait.SESSION:
                self._session_ended(group, timer.member_id, step, now)
            elif timer.wait is Wait.SYNC:
                self._sync_took_too_long(group, step, now)
            elif group.state is ClassicState.PREPARING_REBALANCE:
                self._join_time_is_over(group, step, now)

    def _session_ended(self, group: ClassicGroup, member_id: str, step: Step, now: Moment) -> None:
        if member_id in group.pending_members:
            self.remove_pending(group, member_id, step, now)
            return
        member = group.members.get(member_id)
        if member is not None and (member.is_new or not member.is_waiting):
            self.remove(group, member, step)
            self.rebalance(group, step, now)

    def _sync_took_too_long(self, group: ClassicGroup, step: Step, now: Moment) -> None:
        """Members that never asked for their part do not read it: out with them."""
        missing = [group.members[member_id] for member_id in sorted(group.pending_sync)]
        if group.state in SETTLED and missing:
            for member in missing:
                self.remove(group, member, step)
            self.prepare(group, step, now)

    def _join_time_is_over(self, group: ClassicGroup, step: Step, now: Moment) -> None:
        if group.is_initial_rebalance and group.is_member_added and group.initial_remaining_ms > 0:
            group.is_member_added = False
            delay_ms = min(self._table.settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(0, group.initial_remaining_ms - delay_ms)
            self._wait(Wait.JOIN, group, delay_ms, now)
        else:
            self.complete_join(group, step, now)

    def _wait(self, wait: Wait, group: ClassicGroup, timeout_ms: int, now: Moment) -> None:
        self._deadlines.set(Timer(wait, group.group_id), now.monotonic_ms + timeout_ms)

    # ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    def rebalance(self, group: ClassicGroup, step: Step, now: Moment) -> None:
        """Somebody came, went or changed: begin a rebalance, or go on with the one that is under way."""
        if group.state is ClassicState.PREPARING_REBALANCE:
            self.complete_join_if_all_are_here(group, step, now)
        else:
            self.prepare(group, step, now)

    def prepare(self, group: ClassicGroup, step: Step, now: Moment) -> None:
        """Begin a rebalance."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self._withdraw_assignment(group, step, now)
        self.end_of_sync(group)
        group.enter(ClassicState.PREPARING_REBALANCE, now.wall_ms)
        if group.is_initial_rebalance:
            delay_ms = self._table.settings.initial_rebalance_delay_ms
            group.is_member_added = False
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            if delay_ms:
                self._wait(Wait.JOIN, group, delay_ms, now)
            else:
                self.complete_join(group, step, now)
        elif group.have_all_joined:
            self.complete_join(group, step, now)
        else:
            self._wait(Wait.JOIN, group, group.rebalance_timeout_ms, now)

    def complete_join_if_all_are_here(self, group: ClassicGroup, step: Step, now: Moment) -> None:
        """The first rebalance of a group is over by time alone."""
        is_joining = group.state is ClassicState.PREPARING_REBALANCE
        if is_joining and not group.is_initial_rebalance and group.have_all_joined:
            self.complete_join(group, step, now)

    def complete_join(self, group: ClassicGroup, step: Step, now: Moment) -> None:
        """Whoever has joined by now makes the next generation."""
        self._deadlines.clear(Timer(Wait.JOIN, group.group_id))
        for member in list(group.members.values()):
            if member.join_token is None and member.instance_id is None:
                self.remove(group, member, step)
        if not group.elect_joined_leader() and group.members:
            # Static members alone, none of whom has come back: wait as long again, or until their sessions end.
            self._wait(Wait.JOIN, group, max(group.rebalance_timeout_ms, WAIT_AGAIN_MS_MIN), now)
            return
        group.begin_generation(now.wall_ms)
        if group.is_empty:
            step.records.append(group.record())
            return
        for member in group.members.values():
            if (token := group.take_join_token(member)) is not None:
                step.answers.append((token, joined(group, member)))
            self.heard_of(group, member, now)
            member.is_new = False
        self._wait(Wait.SYNC, group, group.rebalance_timeout_ms, now)

    def _withdraw_assignment(self, group: ClassicGroup, step: Step, now: Moment) -> None:
        """The assignment of this generation will not come."""
        for member in group.members.values():
            member.assignment = b""
            if member.sync_token is not None:
                answer_sync(member, Error.REBALANCE_IN_PROGRESS, step)
                self.heard_of(group, member, now)

    def end_of_sync(self, group: ClassicGroup) -> None:
        """Nobody is expected to ask for its part any more."""
        group.pending_sync.clear()
        self._deadlines.clear(Timer(Wait.SYNC, group.group_id))

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """A member has asked for its part."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self.end_of_sync(group)

    # ── leaving ──────────────────────────────────────────────────────────────────────────────────────────────────

    def remove(self, group: ClassicGroup, member: ClassicMember, step: Step) -> None:
        """A member is out. Whatever it waits for, it is told so."""
        self.forget_session(group, member.member_id)
        answer_join(group, member, Error.UNKNOWN_MEMBER_ID, step)
        answer_sync(member, Error.UNKNOWN_MEMBER_ID, step)
        group.remove(member)

    def remove_pending(self, group: ClassicGroup, member_id: str, step: Step, now: Moment) -> None:
        """Nobody comes with an id that was given out: the others wait no longer."""
        self.forget_session(group, member_id)
        group.pending_members.discard(member_id)
        self.complete_join_if_all_are_here(group, step, now)

    def let_go(self, group: ClassicGroup, step: Step) -> None:
        """The group becomes one of another kind: whoever waits joins again, and finds the new one."""
        self.forget(group)
        for member in group.members.values():
            answer_join(group, member, Error.REBALANCE_IN_PROGRESS, step, member.member_id)
            answer_sync(member, Error.REBALANCE_IN_PROGRESS, step)


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def joined(group: ClassicGroup, member: ClassicMember, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """Welcome to the generation. The leader is told about everybody."""
    is_leader = member.member_id == group.leader_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment and is_leader,
        member_id=member.member_id,
        members=_everybody(group) if is_leader else [],
    )


def _everybody(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def refuse_join(token: Token, error: Error, step: Step, member_id: str = "") -> None:
    step.answers.append((token, JoinGroupResponse(error_code=error, protocol_name=None, member_id=member_id)))


def answer_join(group: ClassicGroup, member: ClassicMember, error: Error, step: Step, member_id: str = "") -> None:
    """If the member waits to join, it does so in vain."""
    if (token := group.take_join_token(member)) is not None:
        refuse_join(token, error, step, member_id)


def answer_sync(member: ClassicMember, error: Error, step: Step) -> None:
    """If the member waits for its assignment, it does so in vain."""
    if member.sync_token is not None:
        step.answers.append((member.sync_token, SyncGroupResponse(error_code=error)))
        member.sync_token = None


def assigned(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    """The member's part."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
