"""OffsetDelete (0): forget offsets of topics that a group does not read any more."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(broker: Broker, request: OffsetDeleteRequest, _context: RequestContext) -> OffsetDeleteResponse:
    known = [topic for topic in request.topics if topic.name in broker.view.topics]
    unknown = [topic for topic in request.topics if topic.name not in broker.view.topics]
    request.topics = known
    try:
        if not request.group_id:
            raise ApiError(Error.INVALID_GROUP_ID)
        log = broker.groups.of_key(request.group_id)
        response: OffsetDeleteResponse = await log.ask(lambda shard, token, _now: shard.delete_offsets(token, request))
    except ApiError as refused:
        return OffsetDeleteResponse(error_code=refused.error)
    if response.error_code == Error.NONE:
        response.topics += [_unknown(topic) for topic in unknown]
    return response


def _unknown(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=part.partition_index, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION
            )
            for part in topic.partitions
        ],
    )
