"""Reading and deleting offsets: what OffsetFetch and OffsetDelete decide, and what is forgotten without being asked.

Offsets belong to a group id, whatever the group is. Requests come with the names and the ids of topics, as far as
they are known: the handlers have looked them up.
"""

from __future__ import annotations

from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID, TopicPartition
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.committed import Committed, CommittedOffset
from penstock.groups.table import Group, GroupTable
from penstock.wire.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
)
from penstock.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.messages.offsets_topic_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

NO_OFFSET = -1
ASKED_AT_ONCE_MAX = 100_000


class Offsets:
    """See the head of this file."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self.committed = Committed()

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: StateRecord, producer: ProducerEpoch | None, record_offset: int) -> None:
        key = record.key
        assert isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey)
        partition = TopicPartition(key.topic, key.partition)
        if record.value is None:
            self.committed.remove(key.group, partition)
            return
        if self._table.get(key.group) is None:
            self._table.put(ClassicGroup(key.group))
        offset = CommittedOffset.from_record(_modern(record.value), record_offset)
        if producer is None:
            self.committed.put(key.group, partition, offset)
        else:
            self.committed.put_open(producer.producer_id, key.group, partition, offset)

    def replay_marker(self, producer: ProducerEpoch, *, is_commit: bool) -> None:
        self.committed.end(producer.producer_id, is_commit=is_commit)

    def start(self) -> None:
        """Whoever has offsets is a group, also if what it was before has been deleted."""
        for group_id in self.committed.group_ids():
            if self._table.get(group_id) is None:
                self._table.put(ClassicGroup(group_id))

    # ── OffsetFetch ──────────────────────────────────────────────────────────────────────────────────────────────

    def fetch(self, token: Token, asked: OffsetFetchRequestGroup, *, require_stable: bool) -> Step:
        """One group's offsets; all of them if no topics are named. A group that is not known has none."""
        response = OffsetFetchResponseGroup(group_id=asked.group_id)
        group = self._table.get(asked.group_id)
        try:
            if group is not None:
                group.check_fetch(asked.member_id, asked.member_epoch)
            response.topics = self._fetched(asked, require_stable=require_stable)
        except ApiError as refused:
            response.error_code = refused.error
        return Step(answers=[(token, response)])

    def _fetched(self, asked: OffsetFetchRequestGroup, *, require_stable: bool) -> list[OffsetFetchResponseGroupTopic]:
        wanted: dict[tuple[str, UUID], dict[int, None]] = {}  # what is asked for twice is told once
        if asked.topics is not None:
            if sum(len(topic.partition_indexes) for topic in asked.topics) > ASKED_AT_ONCE_MAX:
                raise ApiError(Error.INVALID_REQUEST)
            for topic in asked.topics:
                wanted.setdefault((topic.name, topic.topic_id), {}).update(dict.fromkeys(topic.partition_indexes))
        else:
            for name, index in self.committed.of_group(asked.group_id):
                wanted.setdefault((name, self._topic_id(name)), {})[index] = None
        return [
            OffsetFetchResponseGroupTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    self._fetched_partition(asked.group_id, TopicPartition(name, index), topic_id, require_stable)
                    for index in partition_indexes
                ],
            )
            for (name, topic_id), partition_indexes in wanted.items()
        ]

    def _fetched_partition(
        self, group_id: str, partition: TopicPartition, topic_id: UUID, require_stable: bool
    ) -> OffsetFetchResponseGroupPartition:
        answer = OffsetFetchResponseGroupPartition(
            partition_index=partition.partition, committed_offset=NO_OFFSET, metadata=""
        )
        if require_stable and self.committed.is_open(group_id, partition):
            answer.error_code = Error.UNSTABLE_OFFSET_COMMIT
            return answer
        offset = self.committed.get(group_id, partition)
        if offset is not None and offset.belongs_to(topic_id):
            answer.committed_offset = offset.offset
            answer.committed_leader_epoch = offset.leader_epoch
            answer.metadata = offset.metadata
        return answer

    def _topic_id(self, name: str) -> UUID:
        topic = self._table.topics.named(name)
        return topic.topic_id if topic is not None else NO_ID

    # ── OffsetDelete and deleting for other reasons ──────────────────────────────────────────────────────────────

    def delete(self, token: Token, request: OffsetDeleteRequest) -> Step:
        """Offsets of topics that the group does not read."""
        group = self._table.get(request.group_id)
        try:
            if group is None:
                raise ApiError(Error.GROUP_ID_NOT_FOUND)
            if sum(len(topic.partitions) for topic in request.topics) > ASKED_AT_ONCE_MAX:
                raise ApiError(Error.INVALID_REQUEST)
            group.check_delete_offsets()
        except ApiError as refused:
            return Step(answers=[(token, OffsetDeleteResponse(error_code=refused.error))])
        step = Step()
        response = OffsetDeleteResponse()
        for topic in request.topics:
            is_read = group.is_subscribed_to(topic.name)
            error = Error.GROUP_SUBSCRIBED_TO_TOPIC if is_read else Error.NONE
            response.topics.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
                        for each in topic.partitions
                    ],
                )
            )
            for index in dict.fromkeys(each.partition_index for each in topic.partitions):
                partition = TopicPartition(topic.name, index)
                if not is_read and self._is_known(request.group_id, partition):
                    step.records.append(_tombstone(request.group_id, partition))
        step.answers.append((token, response))
        return step

    def _is_known(self, group_id: str, partition: TopicPartition) -> bool:
        committed = self.committed
        return committed.get(group_id, partition) is not None or committed.is_open(group_id, partition)

    def tombstones_of_group(self, group_id: str) -> list[StateRecord]:
        """Everything the group has, open transactions included."""
        return [_tombstone(group_id, partition) for partition in self.committed.partitions_of_group(group_id)]

    def tombstones_of_deleted(self, names: frozenset[str]) -> list[StateRecord]:
        """Offsets of topics that are gone, or have given their names to others."""
        ids = {name: topic.topic_id for name in names if (topic := self._table.topics.named(name)) is not None}
        doomed = {
            (group_id, partition): None
            for group_id, partition, topic_id in self.committed.of_topics(names)
            if partition.topic not in ids or topic_id not in (NO_ID, ids[partition.topic])
        }
        return [_tombstone(group_id, partition) for group_id, partition in doomed]

    def expired(self, group: Group, now: Moment) -> tuple[list[StateRecord], bool]:
        """The tombstones of what is too old, and whether the group has nothing then."""
        retention_ms = self._table.settings.offsets_retention_ms
        offsets = self.committed.of_group(group.group_id)
        records = []
        for partition, offset in offsets.items():
            if group.is_subscribed_to(partition.topic) or self.committed.is_open(group.group_id, partition):
                continue
            base_ms = group.expiry_base_ms(offset.commit_ms)
            if base_ms is None:
                continue
            until_ms = offset.expire_ms if offset.expire_ms is not None else base_ms + retention_ms
            if now.wall_ms >= until_ms:
                records.append(_tombstone(group.group_id, partition))
        return records, len(records) == len(offsets) and not self.committed.has_open(group.group_id)


def _tombstone(group_id: str, partition: TopicPartition) -> StateRecord:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return StateRecord(key, None)


def _modern(value: OffsetCommitValue | LegacyOffsetCommitValue) -> OffsetCommitValue:
    if isinstance(value, OffsetCommitValue):
        return value
    return OffsetCommitValue(offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp)
