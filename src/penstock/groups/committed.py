"""What the groups of a shard have committed: offsets that count, and those of transactions that are still open.

Only replaying changes it. A transaction is known by its producer's id alone, because the epoch of its end may be one
higher than that of its records. When it commits, an offset that was written after its own stays: the newest record
wins, as it would if the log were compacted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from penstock.base.identifiers import NO_ID, TopicPartition
from penstock.wire.messages.offsets_topic_records import OffsetCommitValue


class CommittedOffset(NamedTuple):
    """How far a group has come in a partition. `expire_ms`: when a client of old said to forget it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None
    topic_id: UUID
    record_offset: int

    @classmethod
    def from_record(cls, value: OffsetCommitValue, record_offset: int) -> CommittedOffset:
        expire_ms = value.expire_timestamp if value.expire_timestamp >= 0 else None
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            expire_ms,
            value.topic_id,
            record_offset,
        )

    def belongs_to(self, topic_id: UUID) -> bool:
        """Not to another topic that had the same name; where an id is not known, it may."""
        return NO_ID in (self.topic_id, topic_id) or self.topic_id == topic_id


class Committed:
    """See the head of this file."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._open: dict[int, dict[tuple[str, TopicPartition], CommittedOffset]] = {}
        """by producer id: offsets that wait for the end of a transaction"""
        self._open_of_group: dict[str, dict[TopicPartition, set[int]]] = {}
        """the same, by group: which producers' transactions have offsets of a partition"""
        self._count_of_topic: Counter[str] = Counter()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        return self._groups.get(group_id, {}).get(partition)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All that count, not to be changed."""
        return self._groups.get(group_id, {})

    def group_ids(self) -> Iterator[str]:
        """Groups with offsets, open ones too."""
        return iter({*self._groups, *self._open_of_group})

    def is_open(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether the offset of a partition may change by the end of a transaction."""
        return partition in self._open_of_group.get(group_id, {})

    def has_open(self, group_id: str) -> bool:
        return group_id in self._open_of_group

    def partitions_of_group(self, group_id: str) -> list[TopicPartition]:
        """The partitions of which something is known, open ones too."""
        return list(dict.fromkeys((*self._groups.get(group_id, {}), *self._open_of_group.get(group_id, {}))))

    def of_topics(self, names: frozenset[str]) -> list[tuple[str, TopicPartition, UUID]]:
        """(group, partition, the topic's id when it was committed) of everything known about some topics."""
        if not any(name in self._count_of_topic for name in names):
            return []
        found = [
            (group_id, partition, offset.topic_id)
            for group_id, offsets in self._groups.items()
            for partition, offset in offsets.items()
            if partition.topic in names
        ]
        for offsets_of_transaction in self._open.values():
            found += [
                (group_id, partition, offset.topic_id)
                for (group_id, partition), offset in offsets_of_transaction.items()
                if partition.topic in names
            ]
        return found

    # ── replaying ────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        offsets = self._groups.setdefault(group_id, {})
        if partition not in offsets:
            self._count_of_topic[partition.topic] += 1
        offsets[partition] = offset

    def put_open(self, producer_id: int, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        """Part of a transaction."""
        offsets = self._open.setdefault(producer_id, {})
        if (group_id, partition) not in offsets:
            self._count_of_topic[partition.topic] += 1
        offsets[group_id, partition] = offset
        self._open_of_group.setdefault(group_id, {}).setdefault(partition, set()).add(producer_id)

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Forget a partition, in open transactions too."""
        offsets = self._groups.get(group_id)
        if offsets is not None and offsets.pop(partition, None) is not None:
            self._one_less_of(partition.topic)
            if not offsets:
                del self._groups[group_id]
        for producer_id in list(self._open_of_group.get(group_id, {}).get(partition, ())):
            self._take_open(producer_id, group_id, partition)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        """A transaction is over."""
        for group_id, partition in list(self._open.get(producer_id, ())):
            offset = self._take_open(producer_id, group_id, partition)
            existing = self.get(group_id, partition)
            if is_commit and (existing is None or offset.record_offset > existing.record_offset):
                self.put(group_id, partition, offset)

    def _take_open(self, producer_id: int, group_id: str, partition: TopicPartition) -> CommittedOffset:
        offsets = self._open[producer_id]
        taken = offsets.pop((group_id, partition))
        self._one_less_of(partition.topic)
        if not offsets:
            del self._open[producer_id]
        partitions = self._open_of_group[group_id]
        partitions[partition].discard(producer_id)
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._open_of_group[group_id]
        return taken

    def _one_less_of(self, topic: str) -> None:
        self._count_of_topic[topic] -= 1
        if not self._count_of_topic[topic]:
            del self._count_of_topic[topic]
