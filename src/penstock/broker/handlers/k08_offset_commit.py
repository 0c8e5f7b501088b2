"""OffsetCommit (2-10): store how far a group has read. Only partitions that exist are stored."""

from __future__ import annotations

import asyncio

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import caller_of
from penstock.broker.requests import RequestContext
from penstock.groups.offset_commits import refused_commit
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.zookeeper.topic_znodes import Topic

TOPIC_IDS_SINCE = 10


async def handle(broker: Broker, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    if not broker.rights.allows(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refused_commit(request, Error.GROUP_AUTHORIZATION_FAILED)
    answers = []
    known = []
    for asked in request.topics:
        topic = _find(broker, asked, context.version)
        name = topic.name if topic is not None else asked.name
        if name and not broker.rights.allows(context, Operation.READ, ResourceType.TOPIC, name):
            answers.append(_refused(asked, asked.partitions, Error.TOPIC_AUTHORIZATION_FAILED))
            continue
        if topic is None:
            error = Error.UNKNOWN_TOPIC_ID if context.version >= TOPIC_IDS_SINCE else Error.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(_refused(asked, asked.partitions, error))
            continue
        asked.name, asked.topic_id = topic.name, topic.topic_id
        count = len(topic.partitions)
        there = [part for part in asked.partitions if 0 <= part.partition_index < count]
        missing = [part for part in asked.partitions if not 0 <= part.partition_index < count]
        if missing:
            answers.append(_refused(asked, missing, Error.UNKNOWN_TOPIC_OR_PARTITION))
        if there:
            known.append(OffsetCommitRequestTopic(name=asked.name, topic_id=asked.topic_id, partitions=there))
    if not known and request.topics:
        return OffsetCommitResponse(topics=answers)
    request.topics = known
    response = await _commit(broker, request, context)
    response.topics = _merged(answers, response.topics)
    return response


def _find(broker: Broker, asked: OffsetCommitRequestTopic, version: int) -> Topic | None:
    if version >= TOPIC_IDS_SINCE:
        return broker.view.topic_by_id(asked.topic_id)
    return broker.view.topics.get(asked.name)


async def _commit(broker: Broker, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    caller = caller_of(context)
    timeout_ms = broker.settings.integer("offsets.commit.timeout.ms")
    try:
        log = broker.groups.of_key(request.group_id)
        async with asyncio.timeout(timeout_ms / 1000):
            response: OffsetCommitResponse = await log.ask(
                lambda shard, token, now: shard.commit_offsets(token, request, caller, now)
            )
    except ApiError as refused:
        return refused_commit(request, refused.error)
    except TimeoutError:  # it may be stored yet: the client asks again
        return refused_commit(request, Error.COORDINATOR_NOT_AVAILABLE)
    return response


def _refused(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], error: Error
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error) for part in partitions
        ],
    )


def _merged(
    refused: list[OffsetCommitResponseTopic], committed: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """One entry for each topic, though some of its partitions are not there."""
    rows = {(topic.name, topic.topic_id): topic for topic in committed}
    for topic in refused:
        row = rows.setdefault((topic.name, topic.topic_id), topic)
        if row is not topic:
            row.partitions += topic.partitions
    return list(rows.values())
