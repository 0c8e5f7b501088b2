"""Everything one partition of `__consumer_offsets` knows: groups of both kinds, and committed offsets.

The shard is the machine that the shell talks to: it replays records, and hands each request to the one who answers
for it. `ClassicGroups` and `ConsumerGroups` look after the groups of their kind in one shared table; `Offsets` keeps
what was committed, whatever the kind of the group. A group may change its kind: its records say so, a tombstone for
what it was and new records for what it is, in one batch. So replaying a record never touches a group of another kind.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.groups.settings import GroupSettings
from penstock.groups.table import Caller, GroupTable, Topics
from penstock.wire.messages.k11_join_group import JoinGroupRequest
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest
from penstock.wire.messages.k13_leave_group import LeaveGroupRequest
from penstock.wire.messages.k14_sync_group import SyncGroupRequest
from penstock.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest


class GroupShard:
    """See the head of this file."""

    def __init__(self, settings: GroupSettings, new_uuid: Callable[[], UUID], topics: Topics) -> None:
        self.table = GroupTable(settings, new_uuid, topics)

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: StateRecord, producer: ProducerEpoch | None, offset: int) -> None:
        raise NotImplementedError

    def replay_marker(self, producer: ProducerEpoch, *, is_commit: bool) -> None:
        raise NotImplementedError

    def start(self, now: Moment) -> Step:
        raise NotImplementedError

    # ── time and the world ───────────────────────────────────────────────────────────────────────────────────────

    def next_deadline_ms(self) -> int | None:
        raise NotImplementedError

    def on_time(self, now: Moment) -> Step:
        raise NotImplementedError

    def use_settings(self, settings: GroupSettings) -> None:
        """A dynamic setting has changed."""
        self.table.settings = settings

    def topics_changed(self, names: frozenset[str], now: Moment) -> Step:
        """Topics were created, changed or deleted: `Topics` shows them as they are now."""
        raise NotImplementedError

    # ── members of classic groups, and members of consumer groups that still speak the classic protocol ──────────

    def join_group(self, token: Token, request: JoinGroupRequest, caller: Caller, now: Moment) -> Step:
        raise NotImplementedError

    def sync_group(self, token: Token, request: SyncGroupRequest, now: Moment) -> Step:
        raise NotImplementedError

    def heartbeat(self, token: Token, request: HeartbeatRequest, now: Moment) -> Step:
        raise NotImplementedError

    def leave_group(self, token: Token, request: LeaveGroupRequest, now: Moment) -> Step:
        """Members of version 3 and newer; the handler makes the one member of an older request such a list."""
        raise NotImplementedError

    # ── offsets ──────────────────────────────────────────────────────────────────────────────────────────────────

    def txn_commit_offsets(self, token: Token, request: TxnOffsetCommitRequest, caller: Caller, now: Moment) -> Step:
        """Offsets that count when the producer's transaction commits."""
        raise NotImplementedError
