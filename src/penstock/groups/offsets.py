"""Committing, reading and deleting offsets: what OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete decide.

Offsets belong to a group id, whatever the group is. A commit under a name that no group has makes an empty one
without a protocol, because tools and consumers without a group store offsets too. Requests come with topics that
exist: the handlers have looked them up, and filled in both name and id.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID, TopicPartition
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.committed import Committed, CommittedOffset
from penstock.groups.table import Caller, Group, GroupTable, PartitionCheck
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
)
from penstock.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
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

UNKNOWN_GROUP_IS_AN_ERROR_SINCE = 9
COMMITTED_AT_ONCE_MAX = 50_000
METADATA_BYTES_MAX = 0x7FFF
NO_OFFSET = -1
NO_EPOCH = -1
BROKERS_RETENTION = -1


class Offsets:
    """See the head of this file. `heard_of` is told that a member of a classic group has shown that it lives."""

    def __init__(self, table: GroupTable, heard_of: Callable[[ClassicGroup, str, Moment], None]) -> None:
        self._table = table
        self._heard_of = heard_of
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

    # ── OffsetCommit ─────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, token: Token, request: OffsetCommitRequest, caller: Caller, now: Moment) -> Step:
        step = Step()
        try:
            check = self._check_commit(request, caller, now)
            for topic in request.topics:
                for partition in topic.partitions:
                    _apply(check, topic.name, topic.topic_id, partition.partition_index)
        except ApiError as refused:
            step.answers.append((token, refused_commit(request, refused.error)))
            return step
        expire_ms = NO_OFFSET
        if request.retention_time_ms != BROKERS_RETENTION:
            expire_ms = now.wall_ms + max(0, request.retention_time_ms)
        response = OffsetCommitResponse()
        for topic in request.topics:
            answered = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answered)
            for partition in topic.partitions:
                error = self._metadata_error(partition.committed_metadata)
                if error is Error.NONE:
                    value = _value(partition, topic.topic_id, now.wall_ms, expire_ms)
                    step.records.append(_record(request.group_id, topic.name, partition.partition_index, value))
                answered.partitions.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                )
        step.answers.append((token, response))
        return step

    def _check_commit(self, request: OffsetCommitRequest, caller: Caller, now: Moment) -> PartitionCheck | None:
        epoch = request.generation_id_or_member_epoch
        if sum(len(topic.partitions) for topic in request.topics) > COMMITTED_AT_ONCE_MAX:
            raise ApiError(Error.INVALID_COMMIT_OFFSET_SIZE)
        group = self._table.get(request.group_id)
        if group is None:
            if epoch < 0:
                return None
            is_new = caller.version >= UNKNOWN_GROUP_IS_AN_ERROR_SINCE
            raise ApiError(Error.GROUP_ID_NOT_FOUND if is_new else Error.ILLEGAL_GENERATION)
        check = group.check_commit(
            request.member_id, request.group_instance_id, epoch, is_transactional=False, version=caller.version
        )
        if isinstance(group, ClassicGroup):
            self._heard_of(group, request.member_id, now)
        return check

    def _metadata_error(self, metadata: str | None) -> Error:
        if metadata is not None and len(metadata) > self._table.settings.offset_metadata_bytes_max:
            return Error.OFFSET_METADATA_TOO_LARGE
        if metadata is not None and len(metadata.encode()) > METADATA_BYTES_MAX:
            return Error.OFFSET_METADATA_TOO_LARGE
        return Error.NONE

    # ── TxnOffsetCommit ──────────────────────────────────────────────────────────────────────────────────────────

    def commit_in_transaction(self, token: Token, request: TxnOffsetCommitRequest, caller: Caller, now: Moment) -> Step:
        """The records belong to the producer's transaction, and count when it commits."""
        step = Step()
        topic_ids = {topic.name: self._topic_id(topic.name) for topic in request.topics}
        try:
            check = self._check_commit_in_transaction(request, caller)
            for topic in request.topics:
                for partition in topic.partitions:
                    _apply(check, topic.name, topic_ids[topic.name], partition.partition_index)
        except ApiError as refused:
            step.answers.append((token, refused_txn_commit(request, refused.error)))
            return step
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            answered = TxnOffsetCommitResponseTopic(name=topic.name)
            response.topics.append(answered)
            for partition in topic.partitions:
                error = self._metadata_error(partition.committed_metadata)
                if error is Error.NONE:
                    value = _value(partition, topic_ids[topic.name], now.wall_ms)
                    step.records.append(_record(request.group_id, topic.name, partition.partition_index, value))
                answered.partitions.append(
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                )
        step.producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        step.answers.append((token, response))
        return step

    def _check_commit_in_transaction(self, request: TxnOffsetCommitRequest, caller: Caller) -> PartitionCheck | None:
        if sum(len(topic.partitions) for topic in request.topics) > COMMITTED_AT_ONCE_MAX:
            raise ApiError(Error.INVALID_COMMIT_OFFSET_SIZE)
        group = self._table.get(request.group_id)
        if group is None:
            if request.generation_id < 0:
                return None
            raise ApiError(Error.ILLEGAL_GENERATION)
        try:
            return group.check_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                is_transactional=True,
                version=caller.version,
            )
        except ApiError as refused:
            if refused.error is Error.STALE_MEMBER_EPOCH:  # no version of this request knows it
                raise ApiError(Error.ILLEGAL_GENERATION) from refused
            raise

    def _topic_id(self, name: str) -> UUID:
        topic = self._table.topics.named(name)
        return topic.topic_id if topic is not None else NO_ID

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
        if asked.topics is not None:
            wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in asked.topics]
        else:
            indexes: dict[str, list[int]] = {}
            for partition in self.committed.of_group(asked.group_id):
                indexes.setdefault(partition.topic, []).append(partition.partition)
            wanted = [(name, self._topic_id(name), found) for name, found in indexes.items()]
        return [
            OffsetFetchResponseGroupTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    self._fetched_partition(asked.group_id, TopicPartition(name, index), topic_id, require_stable)
                    for index in partition_indexes
                ],
            )
            for name, topic_id, partition_indexes in wanted
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

    # ── OffsetDelete and deleting for other reasons ──────────────────────────────────────────────────────────────

    def delete(self, token: Token, request: OffsetDeleteRequest) -> Step:
        """Offsets of topics that the group does not read."""
        group = self._table.get(request.group_id)
        try:
            if group is None:
                raise ApiError(Error.GROUP_ID_NOT_FOUND)
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


# ── records and refusals ─────────────────────────────────────────────────────────────────────────────────────────


def _apply(check: PartitionCheck | None, topic: str, topic_id: UUID, index: int) -> None:
    if check is not None and (error := check(topic, topic_id, index)) is not Error.NONE:
        raise ApiError(error)


def _value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: UUID,
    wall_ms: int,
    expire_ms: int = NO_OFFSET,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=max(NO_EPOCH, partition.committed_leader_epoch),
        metadata=partition.committed_metadata or "",
        commit_timestamp=wall_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )


def _record(group_id: str, topic: str, index: int, value: OffsetCommitValue) -> StateRecord:
    return StateRecord(OffsetCommitKey(group=group_id, topic=topic, partition=index), value)


def _tombstone(group_id: str, partition: TopicPartition) -> StateRecord:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return StateRecord(key, None)


def _modern(value: OffsetCommitValue | LegacyOffsetCommitValue) -> OffsetCommitValue:
    if isinstance(value, OffsetCommitValue):
        return value
    return OffsetCommitValue(offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp)


def refused_commit(request: OffsetCommitRequest, error: Error) -> OffsetCommitResponse:
    """The same error for everything."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refused_txn_commit(request: TxnOffsetCommitRequest, error: Error) -> TxnOffsetCommitResponse:
    """The same error for everything."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
