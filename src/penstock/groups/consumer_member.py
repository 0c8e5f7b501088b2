"""A member of a consumer group: what it asked for, and how far it has come.

Members are values: a decision makes a new one beside the old one, and writes down what differs. What a member asked
for (its *subscription*) and what it has (its *assignment*) are kept in two records, because the second changes much
more often.

A member has a partition from when it was assigned until it has said that it let go of it: `assigned` may be read,
`revoking` must be given up. Beside each partition is the member epoch in which it was given: a commit that is older
than that is not the member's to make.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

from penstock.base.steps import StateRecord
from penstock.wire.messages.offsets_topic_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentMemberAssignmentValueTopicPartitions,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMemberMetadataValueClassicMemberMetadata,
    ConsumerGroupMemberMetadataValueClassicProtocol,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_STATIC_EPOCH = -2
"""a static member that will be back within its session: nobody else gets its partitions"""

Held: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""topic id to partition to the member epoch in which it was assigned"""

Owned: TypeAlias = Sequence[tuple[UUID, Sequence[int]]]
"""what a client says it has"""


class MemberState(IntEnum):
    """Where a member stands on its way to the group's target, by the numbers of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """it stays in its epoch until it has let go of what it must give up"""
    UNRELEASED_PARTITIONS = 2
    """it is in the new epoch, and waits for partitions that others have not let go of yet"""
    UNKNOWN = 127
    """a newer release wrote this"""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicSpeaker:
    """What the group keeps of a member that still speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, subscription), the one it likes best first"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """See the head of this file."""

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_pattern: str = ""
    """a regular expression; empty if it subscribes by names alone"""
    server_assignor: str | None = None
    classic: ClassicSpeaker | None = None
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def subscription_bytes(self) -> int:
        """How much memory it takes, about, with what it says of itself."""
        texts = (self.member_id, self.instance_id, self.rack_id, self.client_id, self.topic_pattern, *self.topic_names)
        size_bytes = sum(len(text) for text in texts if text is not None)
        if self.classic is not None:
            size_bytes += sum(len(name) + len(metadata) for name, metadata in self.classic.protocols)
        return size_bytes

    def held_since(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch in which it got a partition that it has not let go of; None if it has no such."""
        for held in (self.assigned, self.revoking):
            since = held.get(topic_id, {}).get(partition)
            if since is not None:
                return since
        return None

    def held_partitions(self) -> Iterator[tuple[UUID, int]]:
        for held in (self.assigned, self.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    yield topic_id, partition

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────

    def subscription_record(self, group_id: str) -> StateRecord:
        classic = None
        if self.classic is not None:
            classic = ConsumerGroupMemberMetadataValueClassicMemberMetadata(
                session_timeout_ms=self.classic.session_timeout_ms,
                supported_protocols=[
                    ConsumerGroupMemberMetadataValueClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in self.classic.protocols
                ],
            )
        value = ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
            subscribed_topic_regex=self.topic_pattern,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=classic,
        )
        return StateRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id), value)

    def with_subscription(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """As its record says."""
        classic = None
        if value.classic_member_metadata is not None:
            metadata = value.classic_member_metadata
            protocols = tuple((each.name, bytes(each.metadata)) for each in metadata.supported_protocols)
            classic = ClassicSpeaker(metadata.session_timeout_ms, protocols)
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_pattern=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=classic,
        )

    def assignment_record(self, group_id: str) -> StateRecord:
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_stored(self.assigned),
            partitions_pending_revocation=_stored(self.revoking),
        )
        return StateRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id), value)

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """As its record says."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_held(value.assigned_partitions, value.member_epoch),
            revoking=_held(value.partitions_pending_revocation, value.member_epoch),
        )


def _stored(held: Held) -> list[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions]:
    stored = []
    for topic_id in sorted(held):
        partitions = sorted(held[topic_id])
        epochs = [held[topic_id][partition] for partition in partitions]
        stored.append(
            ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(
                topic_id=topic_id, partitions=partitions, assignment_epochs=epochs
            )
        )
    return stored


def _held(stored: Iterable[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions], member_epoch: int) -> Held:
    """Records of older releases have no epochs: then a partition counts from the member's own epoch."""
    held: dict[UUID, dict[int, int]] = {}
    for each in stored:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [max(member_epoch, 0)] * len(each.partitions)
        held[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return held


def is_subset(owned: Owned, held: Held) -> bool:
    """Whether a client has nothing but what it is known to have."""
    return all(partition in held.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions)


def overlaps(owned: Owned, held: Held) -> bool:
    return any(partition in held.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions)
