"""Committing offsets: what OffsetCommit and TxnOffsetCommit decide.

A commit under a name that no group has makes an empty one without a protocol, because tools and consumers without a
group store offsets too; replaying its records makes that group. Requests come with topics that exist: the handlers
have looked them up, and filled in both name and id.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.table import Caller, GroupTable, PartitionCheck
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.wire.messages.offsets_topic_records import OffsetCommitKey, OffsetCommitValue

UNKNOWN_GROUP_IS_AN_ERROR_SINCE = 9
COMMITTED_AT_ONCE_MAX = 20_000
METADATA_AT_ONCE_MAX = 4 << 20
"""characters, of all partitions of a commit together: they are written as one batch, while everybody else waits"""
METADATA_BYTES_MAX = 0x7FFF
NO_EPOCH = -1
NO_TIME = -1
TIME_MS_MAX = 2**63 - 1
BROKERS_RETENTION = -1


class OffsetCommits:
    """See the head of this file. `heard_of` is told that a member of a classic group has shown that it lives."""

    def __init__(self, table: GroupTable, heard_of: Callable[[ClassicGroup, str, Moment], None]) -> None:
        self._table = table
        self._heard_of = heard_of

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
        expire_ms = NO_TIME
        if request.retention_time_ms != BROKERS_RETENTION:
            expire_ms = min(now.wall_ms + max(0, request.retention_time_ms), TIME_MS_MAX)
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
        _check_size(request)
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
        _check_size(request)
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


# ── records and refusals ─────────────────────────────────────────────────────────────────────────────────────────


def _check_size(request: OffsetCommitRequest | TxnOffsetCommitRequest) -> None:
    """ApiError for more than is written at once."""
    sizes = [len(part.committed_metadata or "") for topic in request.topics for part in topic.partitions]
    if len(sizes) > COMMITTED_AT_ONCE_MAX or sum(sizes) > METADATA_AT_ONCE_MAX:
        raise ApiError(Error.INVALID_COMMIT_OFFSET_SIZE)


def _apply(check: PartitionCheck | None, topic: str, topic_id: UUID, index: int) -> None:
    if check is not None and (error := check(topic, topic_id, index)) is not Error.NONE:
        raise ApiError(error)


def _value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: UUID,
    wall_ms: int,
    expire_ms: int = NO_TIME,
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
