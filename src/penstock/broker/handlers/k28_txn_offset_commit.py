"""TxnOffsetCommit (0-5): store how far a group has read, when the producer's transaction commits.

As with a produce, the group's partition of `__consumer_offsets` must belong to the transaction before the first records
are appended there: verified for older clients, added for those of version 5.
"""

from __future__ import annotations

import asyncio

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Moment, ProducerEpoch, Step, Token
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import caller_of
from penstock.broker.requests import RequestContext
from penstock.broker.state_log import StateLog
from penstock.broker.transaction_links import OFFSET_COMMIT_ADDS_SINCE, add_or_verify, error_for_offset_commit
from penstock.broker.verification import Verification
from penstock.groups.offset_commits import refused_txn_commit
from penstock.groups.shard import GroupShard
from penstock.security.acls import Operation, ResourceType
from penstock.wire.batch import NO_SEQUENCE
from penstock.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


async def handle(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    try:
        broker.rights.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        broker.rights.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
    except ApiError as refused:
        return refused_txn_commit(request, refused.error)
    allowed, denied = broker.rights.sorted_out(
        context, Operation.READ, ResourceType.TOPIC, request.topics, lambda topic: topic.name
    )
    known, answers = _sort_out(broker, allowed)
    for asked in denied:
        row = answers.setdefault(asked.name, TxnOffsetCommitResponseTopic(name=asked.name))
        row.partitions += [
            TxnOffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=Error.TOPIC_AUTHORIZATION_FAILED
            )
            for part in asked.partitions
        ]
    if known:
        request.topics = known
        for topic in (await _commit(broker, request, context)).topics:
            answers.setdefault(topic.name, TxnOffsetCommitResponseTopic(name=topic.name)).partitions += topic.partitions
    return TxnOffsetCommitResponse(topics=list(answers.values()))


def _sort_out(
    broker: Broker, topics: list[TxnOffsetCommitRequestTopic]
) -> tuple[list[TxnOffsetCommitRequestTopic], dict[str, TxnOffsetCommitResponseTopic]]:
    """What there is to commit, and the answers for partitions that do not exist."""
    known = []
    answers: dict[str, TxnOffsetCommitResponseTopic] = {}
    for asked in topics:
        topic = broker.view.topics.get(asked.name)
        count = len(topic.partitions) if topic is not None else 0
        there = [part for part in asked.partitions if 0 <= part.partition_index < count]
        if there:
            known.append(TxnOffsetCommitRequestTopic(name=asked.name, partitions=there))
        missing = [part.partition_index for part in asked.partitions if not 0 <= part.partition_index < count]
        if missing or not asked.partitions:
            row = answers.setdefault(asked.name, TxnOffsetCommitResponseTopic(name=asked.name))
            row.partitions += [
                TxnOffsetCommitResponsePartition(partition_index=index, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION)
                for index in missing
            ]
    return known, answers


async def _commit(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    timeout_ms = broker.settings.integer("offsets.commit.timeout.ms")
    try:
        if not request.group_id:
            raise ApiError(Error.INVALID_GROUP_ID)
        log = broker.groups.of_key(request.group_id)
        commit = _Commit(broker, log, request, context)
        await commit.verify()
        async with asyncio.timeout(timeout_ms / 1000):
            response: TxnOffsetCommitResponse = await log.ask(commit.decide)
    except ApiError as refused:
        return refused_txn_commit(request, refused.error)
    except TimeoutError:  # it may be stored yet: the client asks again
        return refused_txn_commit(request, Error.COORDINATOR_NOT_AVAILABLE)
    return response


class _Commit:
    """One commit, from the question to the transaction's coordinator to the decision of the group's shard."""

    def __init__(
        self, broker: Broker, log: StateLog[GroupShard], request: TxnOffsetCommitRequest, context: RequestContext
    ) -> None:
        self._broker = broker
        self._partition = log.partition
        self._request = request
        self._version = context.version
        self._caller = caller_of(context)
        self._producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        self._needs_verification = broker.settings.flag("transaction.partition.verification.enable")
        self._verification: Verification | None = None

    async def verify(self) -> None:
        """ApiError unless the group's partition belongs to the transaction."""
        is_add = self._version >= OFFSET_COMMIT_ADDS_SINCE
        if not (is_add or self._needs_verification):
            return
        partition = self._partition
        self._verification = partition.verifications.begin(
            partition.log.producers, self._producer, NO_SEQUENCE, is_add=is_add
        )
        if self._verification is None:
            return
        name, transactional_id = partition.name, self._request.transactional_id
        error = (await add_or_verify(self._broker, transactional_id, self._producer, [name], is_add=is_add))[name]
        if error is not Error.NONE:
            if not error.retriable:
                partition.verifications.refuse(self._producer)
            raise ApiError(error_for_offset_commit(error, self._version))

    def decide(self, shard: GroupShard, token: Token, now: Moment) -> Step:
        """What the shard decides, unless the transaction has ended since it was verified."""
        verifications = self._partition.verifications
        try:
            verifications.check(
                self._partition.log.producers, self._producer, self._verification, is_needed=self._needs_verification
            )
        except ApiError as refused:
            return Step(answers=[(token, refused_txn_commit(self._request, refused.error))])
        step = shard.txn_commit_offsets(token, self._request, self._caller, now)
        if step.records:  # they open the transaction here, and are appended now
            verifications.forget(self._producer.producer_id)
        return step
