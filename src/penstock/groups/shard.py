"""Everything one partition of `__consumer_offsets` knows: groups of both kinds, and committed offsets.

The shard is the machine that the shell talks to: it replays records, and hands each request to the one who answers
for it. `ClassicGroups` and `ConsumerGroups` look after the groups of their kind in one shared table; `Offsets` keeps
what was committed, whatever the kind of the group. A group may change its kind: its records say so, a tombstone for
what it was and new records for what it is, in one batch. So replaying a record never touches a group of another kind.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.groups.classic_group import ClassicGroup, ClassicState
from penstock.groups.classic_groups import ClassicGroups
from penstock.groups.classic_rebalance import refuse_join
from penstock.groups.classic_speakers import ClassicSpeakers
from penstock.groups.consumer_description import described
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_groups import CONSUMER_GROUP_KEYS, ConsumerGroups
from penstock.groups.consumer_heartbeat import ConsumerHeartbeats
from penstock.groups.offset_commits import OffsetCommits
from penstock.groups.offsets import Offsets
from penstock.groups.settings import GroupSettings
from penstock.groups.table import Caller, GroupTable, Topics
from penstock.wire.messages.k08_offset_commit import OffsetCommitRequest
from penstock.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup
from penstock.wire.messages.k11_join_group import JoinGroupRequest
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMember
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.messages.k15_describe_groups import DescribeGroupsResponseGroup
from penstock.wire.messages.k16_list_groups import ListGroupsResponseGroup
from penstock.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from penstock.wire.messages.k42_delete_groups import DeleteGroupsResponseGroup
from penstock.wire.messages.k47_offset_delete import OffsetDeleteRequest
from penstock.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeResponseGroup
from penstock.wire.messages.offsets_topic_records import GroupMetadataKey, LegacyOffsetCommitKey, OffsetCommitKey

EXPIRED_AT_ONCE_MAX = 10_000
EXPIRE_MORE_AFTER_MS = 1000
UNKNOWN_GROUP_IS_AN_ERROR_SINCE = 6


class GroupShard:
    """See the head of this file."""

    def __init__(self, settings: GroupSettings, new_uuid: Callable[[], UUID], topics: Topics) -> None:
        self.table = GroupTable(settings, new_uuid, topics)
        self.classic = ClassicGroups(self.table)
        self.consumer = ConsumerGroups(self.table, self.classic.let_go)
        self._heartbeats = ConsumerHeartbeats(self.consumer)
        self._speakers = ClassicSpeakers(self.consumer)
        self.offsets = Offsets(self.table)
        self.commits = OffsetCommits(self.table, self.classic.heard_of)
        self._next_expiry_ms: int | None = None

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: StateRecord, producer: ProducerEpoch | None, offset: int) -> None:
        if isinstance(record.key, OffsetCommitKey | LegacyOffsetCommitKey):
            self.offsets.replay(record, producer, offset)
        elif isinstance(record.key, GroupMetadataKey):
            self.classic.replay(record)
        elif isinstance(record.key, CONSUMER_GROUP_KEYS):
            self.consumer.replay(record)

    def replay_marker(self, producer: ProducerEpoch, *, is_commit: bool) -> None:
        self.offsets.replay_marker(producer, is_commit=is_commit)

    def start(self, now: Moment) -> Step:
        step = Step()
        self.offsets.start()
        self.classic.start(now, step)
        self.consumer.start(now, step)
        self._next_expiry_ms = now.monotonic_ms + self.table.settings.offsets_retention_check_interval_ms
        return step

    # ── time and the world ───────────────────────────────────────────────────────────────────────────────────────

    def next_deadline_ms(self) -> int | None:
        deadlines = (self._next_expiry_ms, self.classic.next_deadline_ms(), self.consumer.next_deadline_ms())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_time(self, now: Moment) -> Step:
        step = Step()
        self.classic.on_time(now, step)
        self.consumer.on_time(now, step)
        if self._next_expiry_ms is not None and now.monotonic_ms >= self._next_expiry_ms:
            self._expire(step, now)
        return step

    def _expire(self, step: Step, now: Moment) -> None:
        """Forget offsets that are too old, and empty groups that have none left."""
        self._next_expiry_ms = now.monotonic_ms + self.table.settings.offsets_retention_check_interval_ms
        for group in self.table:
            tombstones, has_nothing = self.offsets.expired(group, now)
            step.records += tombstones
            is_awaited = isinstance(group, ClassicGroup) and bool(group.pending_members)
            if has_nothing and group.is_empty and not is_awaited:
                step.records += group.tombstones()
            if len(step.records) >= EXPIRED_AT_ONCE_MAX:
                self._next_expiry_ms = now.monotonic_ms + EXPIRE_MORE_AFTER_MS
                return

    def use_settings(self, settings: GroupSettings) -> None:
        """A dynamic setting has changed."""
        self.table.settings = settings

    def topics_changed(self, names: frozenset[str], now: Moment) -> Step:
        """Topics were created, changed or deleted: `Topics` shows them as they are now."""
        step = Step(records=self.offsets.tombstones_of_deleted(names))
        self.consumer.topics_changed(names, now, step)
        return step

    # ── members of classic groups, and members of consumer groups that still speak the classic protocol ──────────

    def join_group(self, token: Token, request: JoinGroupRequest, caller: Caller, now: Moment) -> Step:
        if not request.group_id:
            step = Step()
            refuse_join(token, Error.INVALID_GROUP_ID, step, request.member_id)
            return step
        group = self.table.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._speakers.join_group(group, token, request, caller, now)
        step = self.classic.join_group(token, request, caller, now)
        if isinstance(group, ConsumerGroup) and self.table.get(request.group_id) is not group:
            step.records[:0] = group.tombstones()  # a classic group has taken its place
        return step

    def sync_group(self, token: Token, request: SyncGroupRequest, now: Moment) -> Step:
        group = self.table.get(request.group_id) if request.group_id else None
        if isinstance(group, ClassicGroup) and not group.is_empty:
            return self.classic.sync_group(group, token, request, now)
        if isinstance(group, ConsumerGroup):
            return self._speakers.sync_group(group, token, request, now)
        error = Error.UNKNOWN_MEMBER_ID if request.group_id else Error.INVALID_GROUP_ID
        return Step(answers=[(token, SyncGroupResponse(error_code=error))])

    def heartbeat(self, token: Token, request: HeartbeatRequest, now: Moment) -> Step:
        group = self.table.get(request.group_id) if request.group_id else None
        if isinstance(group, ClassicGroup):
            return self.classic.heartbeat(group, token, request, now)
        if isinstance(group, ConsumerGroup):
            return self._speakers.heartbeat(group, token, request, now)
        error = Error.UNKNOWN_MEMBER_ID if request.group_id else Error.INVALID_GROUP_ID
        return Step(answers=[(token, HeartbeatResponse(error_code=error))])

    def leave_group(self, token: Token, request: LeaveGroupRequest, now: Moment) -> Step:
        """Members of version 3 and newer; the handler makes the one member of an older request such a list."""
        group = self.table.get(request.group_id) if request.group_id else None
        if isinstance(group, ClassicGroup):
            return self.classic.leave_group(group, token, request, now)
        if isinstance(group, ConsumerGroup):
            return self._speakers.leave_group(group, token, request, now)
        if not request.group_id:
            return Step(answers=[(token, LeaveGroupResponse(error_code=Error.INVALID_GROUP_ID))])
        strangers = [
            LeaveGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=Error.UNKNOWN_MEMBER_ID,
            )
            for member in request.members
        ]
        return Step(answers=[(token, LeaveGroupResponse(members=strangers))])

    # ── members of consumer groups ───────────────────────────────────────────────────────────────────────────────

    def consumer_group_heartbeat(
        self, token: Token, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Moment
    ) -> Step:
        return self._heartbeats.heartbeat(token, request, caller, now)

    # ── offsets ──────────────────────────────────────────────────────────────────────────────────────────────────

    def commit_offsets(self, token: Token, request: OffsetCommitRequest, caller: Caller, now: Moment) -> Step:
        """Topics that exist, with their names and ids."""
        return self.commits.commit(token, request, caller, now)

    def txn_commit_offsets(self, token: Token, request: TxnOffsetCommitRequest, caller: Caller, now: Moment) -> Step:
        """Offsets that count when the producer's transaction commits; topics that exist."""
        return self.commits.commit_in_transaction(token, request, caller, now)

    def fetch_offsets(self, token: Token, asked: OffsetFetchRequestGroup, *, require_stable: bool) -> Step:
        """Of one group; the answer is an `OffsetFetchResponseGroup`. Topics with their names and ids."""
        return self.offsets.fetch(token, asked, require_stable=require_stable)

    def delete_offsets(self, token: Token, request: OffsetDeleteRequest) -> Step:
        return self.offsets.delete(token, request)

    # ── groups as a whole ────────────────────────────────────────────────────────────────────────────────────────

    def list_groups(self, token: Token, states: frozenset[str], types: frozenset[str]) -> Step:
        """The answer is a list of `ListGroupsResponseGroup`. Filters in small letters; an empty one takes all."""
        listed = [
            ListGroupsResponseGroup(
                group_id=group.group_id,
                protocol_type=group.listed_protocol_type,
                group_state=group.state_name,
                group_type=group.kind.value,
            )
            for group in self.table
            if (not states or group.state_name.lower() in states) and (not types or group.kind.value.lower() in types)
        ]
        return Step(answers=[(token, listed)])

    def describe_group(self, token: Token, group_id: str, caller: Caller) -> Step:
        """The answer is a `DescribeGroupsResponseGroup`. A group of another kind is as unknown as none."""
        group = self.table.of_kind(group_id, ClassicGroup)
        if group is not None:
            return Step(answers=[(token, self.classic.describe(group))])
        unknown = DescribeGroupsResponseGroup(group_id=group_id, group_state=ClassicState.DEAD.value)
        if caller.version >= UNKNOWN_GROUP_IS_AN_ERROR_SINCE:
            unknown.error_code = Error.GROUP_ID_NOT_FOUND
            unknown.error_message = f"there is no classic group {group_id}"
        return Step(answers=[(token, unknown)])

    def describe_consumer_group(self, token: Token, group_id: str) -> Step:
        """The answer is a `ConsumerGroupDescribeResponseGroup`. A group of another kind is as unknown as none."""
        group = self.table.of_kind(group_id, ConsumerGroup)
        if group is not None:
            return Step(answers=[(token, described(group, self.table.settings.consumer_assignors, self.table.topics))])
        unknown = ConsumerGroupDescribeResponseGroup(
            group_id=group_id,
            error_code=Error.GROUP_ID_NOT_FOUND,
            error_message=f"there is no consumer group {group_id}",
        )
        return Step(answers=[(token, unknown)])

    def delete_group(self, token: Token, group_id: str) -> Step:
        """With its offsets. The answer is a `DeleteGroupsResponseGroup`."""
        step = Step()
        error = Error.NONE
        try:
            group = self.table.get(group_id)
            if group is None:
                raise ApiError(Error.GROUP_ID_NOT_FOUND)
            group.check_delete()
            step.records += self.offsets.tombstones_of_group(group_id)
            step.records += group.tombstones()
        except ApiError as refused:
            error = refused.error
        step.answers.append((token, DeleteGroupsResponseGroup(group_id=group_id, error_code=error)))
        return step
