"""One classic group: its members, the generation they share, and the rules that need no clock.

A group goes round: Empty → PreparingRebalance (members send JoinGroup and wait) → CompletingRebalance (they have
joined a new generation; the leader works out who reads what) → Stable (everybody has its part) → and again when
somebody comes, goes or changes. What happens when is `classic_rebalance.py`; here is what is true.

What is kept of a group is its last record: written when it becomes Stable or Empty. The rest lives in memory only.
After a restart the group is as in its last record, and members that had begun another rebalance begin it again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from penstock.base.errors import ApiError, Error
from penstock.base.steps import StateRecord, Token
from penstock.groups.subscriptions import subscribed_topics
from penstock.groups.table import Group, GroupKind
from penstock.wire.messages.offsets_topic_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMemberMetadata,
)

CONSUMER_PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, what the assignor of that name wants to know of the member), the one it likes best first"""


class ClassicState(StrEnum):
    """The states, as they are told to clients."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """One member. The tokens are its requests that wait for an answer; the group alone sets them."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """its first JoinGroup is not answered yet: it may not know its id, and sends no heartbeats"""
    join_token: Token | None = None
    sync_token: Token | None = None

    @property
    def is_waiting(self) -> bool:
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What the member says to the assignor of that name."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The candidate it likes best."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicGroup(Group):
    """See the head of this file."""

    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state = ClassicState.EMPTY
        self.state_since_ms: int | None = None
        """by the wall clock; None for one that only stores offsets, and after very old records"""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.pending_members: set[str] = set()
        """ids that were given out, and with which nobody has joined yet"""
        self.pending_sync: set[str] = set()
        """members that have not asked for their part of this generation's assignment"""
        self.is_initial_rebalance = False
        self.is_member_added = False
        """somebody joined while the initial rebalance waited, so that it waits on"""
        self.initial_remaining_ms = 0
        """how much longer it may wait after that"""
        self.subscribed: frozenset[str] | None = None
        """the topics its consumers read; None if that is not known"""
        self._static_ids: dict[str, str] = {}
        self._waiting_to_join = 0
        self._support: Counter[str] = Counter()
        self.metadata_bytes = 0
        """how much its members say of themselves, all together"""

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group as its record says."""
        group = cls(group_id)
        group.state = ClassicState.STABLE if value.members else ClassicState.EMPTY
        group.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else None
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        for member in value.members:
            known = member.rebalance_timeout >= 0
            group.add(
                ClassicMember(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout if known else member.session_timeout,
                    session_timeout_ms=member.session_timeout,
                    protocols=((value.protocol or "", member.subscription),),
                    assignment=member.assignment,
                )
            )
        if group.leader_id not in group.members:
            group.leader_id = next(iter(group.members), None)
        group.subscribed = group._subscribed_topics()
        return group

    def record(self) -> StateRecord:
        """What is kept of the group as it is now."""
        members = [
            GroupMetadataValueMemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment,
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=members,
        )
        return StateRecord(GroupMetadataKey(group=self.group_id), value)

    # ── as any group ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_simple(self) -> bool:
        """It never had members: somebody stored offsets under its name."""
        return self.is_empty and self.protocol_type is None and not self.pending_members

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed if self.subscribed is not None else self.is_of_consumers

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int
    ) -> None:
        if epoch < 0 and self.is_empty:
            return  # a tool, or a consumer that does not use groups
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if epoch != self.generation:
                raise ApiError(Error.ILLEGAL_GENERATION)
        elif not is_transactional and not self.is_empty:
            raise ApiError(Error.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise ApiError(Error.REBALANCE_IN_PROGRESS)  # it has lost what it commits, and can commit after its sync

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Everybody may."""

    def check_delete_offsets(self) -> None:
        if not self.is_empty and not self.is_of_consumers:
            raise ApiError(Error.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise ApiError(Error.NON_EMPTY_GROUP)

    def tombstones(self) -> list[StateRecord]:
        return [StateRecord(GroupMetadataKey(group=self.group_id), None)]

    def expiry_base_ms(self, commit_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_ms
        if self.is_empty:
            return commit_ms if self.state_since_ms is None else self.state_since_ms
        if self.is_of_consumers and self.subscribed is not None and self.state is ClassicState.STABLE:
            return commit_ms
        return None

    # ── members ──────────────────────────────────────────────────────────────────────────────────────────────────

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """ApiError if there is no such member, or another has taken the place of this static one."""
        if instance_id is not None:
            existing = self._static_ids.get(instance_id)
            if existing is None:
                raise ApiError(Error.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise ApiError(Error.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise ApiError(Error.UNKNOWN_MEMBER_ID)

    def static_member_id(self, instance_id: str | None) -> str | None:
        return self._static_ids.get(instance_id) if instance_id is not None else None

    def add(self, member: ClassicMember) -> None:
        """A new member. The first of an empty group leads it."""
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self._static_ids
            self._static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_support(member, 1)
        self._waiting_to_join += member.join_token is not None
        self.pending_members.discard(member.member_id)

    def remove(self, member: ClassicMember) -> None:
        """A member that goes; whoever asks must have been answered. If it led, another leads."""
        assert not member.is_waiting
        del self.members[member.member_id]
        self._count_support(member, -1)
        if member.instance_id is not None:
            del self._static_ids[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_sync.discard(member.member_id)

    def replace(self, member: ClassicMember, member_id: str) -> None:
        """A static member comes back under another id and stays what it was."""
        assert member.instance_id is not None and not member.is_waiting
        del self.members[member.member_id]
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        self.pending_sync.discard(member.member_id)
        member.member_id = member_id
        self.members[member_id] = member
        self._static_ids[member.instance_id] = member_id

    def update(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """What a member says of itself when it joins again."""
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def wait_to_join(self, member: ClassicMember, token: Token) -> None:
        """The member's JoinGroup waits for the others."""
        assert member.join_token is None
        member.join_token = token
        self._waiting_to_join += 1

    def take_join_token(self, member: ClassicMember) -> Token | None:
        """The member's JoinGroup, to be answered now; None if it has none."""
        token, member.join_token = member.join_token, None
        self._waiting_to_join -= token is not None
        return token

    @property
    def waiting_to_join(self) -> int:
        """How many members wait for an answer to JoinGroup."""
        return self._waiting_to_join

    @property
    def have_all_joined(self) -> bool:
        return self._waiting_to_join == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ── generations ──────────────────────────────────────────────────────────────────────────────────────────────

    def elect_joined_leader(self) -> bool:
        """Whether somebody leads who has joined; if the leader has not, another takes over."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_token is None:
            joined = next((each for each in self.members.values() if each.join_token is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return leader is not None

    def enter(self, state: ClassicState, wall_ms: int) -> None:
        if state is ClassicState.PREPARING_REBALANCE:
            self.is_initial_rebalance = self.is_empty
        self.state = state
        self.state_since_ms = wall_ms

    def begin_generation(self, wall_ms: int) -> None:
        """The members that are here now are a new generation."""
        self.generation += 1
        self.protocol_name = self.choose_protocol() if self.members else None
        self.subscribed = self._subscribed_topics()
        self.enter(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, wall_ms)
        self.pending_sync = set(self.members)

    def choose_protocol(self) -> str:
        """Of the protocols that all members have, the one that most of them like best."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols could be one of the group."""
        names = {name for name, _ in protocols}
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and any(self._support[name] == len(self.members) for name in names)

    def _count_support(self, member: ClassicMember, change: int) -> None:
        self.metadata_bytes += change * protocols_bytes(member.protocols)
        for name in {name for name, _ in member.protocols}:
            self._support[name] += change
            if not self._support[name]:
                del self._support[name]

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_of_consumers:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())


def protocols_bytes(protocols: Protocols) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)
