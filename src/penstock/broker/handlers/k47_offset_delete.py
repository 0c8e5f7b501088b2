"""OffsetDelete (0): forget offsets of topics that a group does not read any more."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(broker: Broker, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    if not broker.rights.allows(context, Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    request.topics, denied = broker.rights.sorted_out(
        context, Operation.READ, ResourceType.TOPIC, request.topics, lambda topic: topic.name
    )
    unknown = [_take_unknown(broker, topic) for topic in request.topics]
    unknown += [_refused(topic, topic.partitions, Error.TOPIC_AUTHORIZATION_FAILED) for topic in denied]
    request.topics = [topic for topic in request.topics if topic.partitions]
    try:
        if not request.group_id:
            raise ApiError(Error.INVALID_GROUP_ID)
        log = broker.groups.of_key(request.group_id)
        response: OffsetDeleteResponse = await log.ask(lambda shard, token, _now: shard.delete_offsets(token, request))
    except ApiError as refused:
        return OffsetDeleteResponse(error_code=refused.error)
    if response.error_code == Error.NONE:
        _record(broker, request.group_id, response, context)
        response.topics = _merged(response.topics, unknown)
    return response


def _record(broker: Broker, group_id: str, response: OffsetDeleteResponse, context: RequestContext) -> None:
    deleted = [
        f"{topic.name}-{part.partition_index}"
        for topic in response.topics
        for part in topic.partitions
        if part.error_code == Error.NONE
    ]
    if deleted:
        broker.audit.record(
            "offsets_deleted", group=group_id, partitions=deleted, principal=context.principal, host=context.host
        )


def _take_unknown(broker: Broker, topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    """Take the partitions that are not there out of the request; the answer for them."""
    known = broker.view.topics.get(topic.name)
    count = len(known.partitions) if known is not None else 0
    missing = [part for part in topic.partitions if not 0 <= part.partition_index < count]
    topic.partitions = [part for part in topic.partitions if 0 <= part.partition_index < count]
    return _refused(topic, missing, Error.UNKNOWN_TOPIC_OR_PARTITION)


def _refused(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteRequestPartition], error: Error
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=error) for part in partitions
        ],
    )


def _merged(
    answered: list[OffsetDeleteResponseTopic], unknown: list[OffsetDeleteResponseTopic]
) -> list[OffsetDeleteResponseTopic]:
    """One entry for each topic, though some of its partitions are not there."""
    rows = {topic.name: topic for topic in answered}
    for topic in unknown:
        row = rows.setdefault(topic.name, topic)
        if row is not topic:
            row.partitions += topic.partitions
    return list(rows.values())
