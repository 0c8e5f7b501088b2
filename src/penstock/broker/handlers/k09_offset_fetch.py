"""OffsetFetch (1-10): how far groups have read.

Since version 8 it asks for several groups, and each answer has its own error; the one group of older versions becomes
such a list, and the answer is turned back. A group or partition of which nothing is known has the offset -1 and no
error. Topics are looked up for their ids, so that offsets of a deleted topic never show under a new one of its name.

A short request can ask for a lot, the same group a thousand times: groups beyond a total size are refused.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import for_each
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

GROUP_ERROR_SINCE = 2
MANY_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
NO_OFFSET = -1
ANSWER_BYTES_MAX = 32 << 20
ANSWER_BYTES_OF_PARTITION = 32  # and what it says of itself


async def handle(broker: Broker, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    stable = request.require_stable
    if context.version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=await _fetch_many(broker, request.groups, context, stable))
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestGroupTopic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    only = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    return _as_one(request, await _fetch(broker, only, context, stable), context.version)


async def _fetch_many(
    broker: Broker, groups: list[OffsetFetchRequestGroup], context: RequestContext, require_stable: bool
) -> list[OffsetFetchResponseGroup]:
    size_bytes = 0

    async def fetch(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        nonlocal size_bytes
        if size_bytes > ANSWER_BYTES_MAX:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=Error.INVALID_REQUEST)
        answer = await _fetch(broker, group, context, require_stable)
        size_bytes += sum(
            ANSWER_BYTES_OF_PARTITION + len(part.metadata or "") for topic in answer.topics for part in topic.partitions
        )
        return answer

    return await for_each(groups, fetch)


async def _fetch(
    broker: Broker, group: OffsetFetchRequestGroup, context: RequestContext, require_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        broker.rights.check(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        unknown = _look_up(broker, group, context)
        log = broker.groups.of_key(group.group_id)
        response: OffsetFetchResponseGroup = await log.ask(
            lambda shard, token, _now: shard.fetch_offsets(token, group, require_stable=require_stable)
        )
    except ApiError as refused:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=refused.error)
    if response.error_code == Error.NONE:
        if group.topics is None:  # all of them: those that may not be described are left out
            response.topics, _ = broker.rights.sorted_out(
                context,
                Operation.DESCRIBE,
                ResourceType.TOPIC,
                response.topics,
                lambda topic: topic.name,
                is_told=False,
            )
        response.topics += unknown
    return response


def _look_up(
    broker: Broker, group: OffsetFetchRequestGroup, context: RequestContext
) -> list[OffsetFetchResponseGroupTopic]:
    """Fill in names and ids; those whose ids nobody knows, or that may not be described, are answered here."""
    known = []
    unknown = []
    for asked in group.topics or ():
        by_id = context.version >= TOPIC_IDS_SINCE
        topic = broker.view.topic_by_id(asked.topic_id) if by_id else broker.view.topics.get(asked.name)
        if topic is not None:
            asked.name, asked.topic_id = topic.name, topic.topic_id
        if topic is None and by_id:
            unknown.append(_nothing_known(asked, Error.UNKNOWN_TOPIC_ID))
        elif not broker.rights.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, asked.name):
            unknown.append(_nothing_known(asked, Error.TOPIC_AUTHORIZATION_FAILED))
        else:
            known.append(asked)
    if group.topics is not None:
        group.topics = known
    return unknown


def _nothing_known(asked: OffsetFetchRequestGroupTopic, error: Error) -> OffsetFetchResponseGroupTopic:
    return OffsetFetchResponseGroupTopic(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponseGroupPartition(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error
            )
            for index in asked.partition_indexes
        ],
    )


def _as_one(request: OffsetFetchRequest, group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    """The answer for one group, as versions before 8 have it; the first of them has no error of its own."""
    topics = group.topics
    if group.error_code != Error.NONE and version < GROUP_ERROR_SINCE:
        topics = [
            _nothing_known(
                OffsetFetchRequestGroupTopic(name=topic.name, partition_indexes=topic.partition_indexes),
                Error(group.error_code),
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=part.partition_index,
                        committed_offset=part.committed_offset,
                        committed_leader_epoch=part.committed_leader_epoch,
                        metadata=part.metadata,
                        error_code=part.error_code,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
