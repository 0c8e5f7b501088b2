"""OffsetForLeaderEpoch (2-4): where a leader epoch ended in this log, so that a reader finds where histories part."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)


def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    is_broker = broker.rights.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, is_told=False)
    asker = None if is_broker else context
    topics = [
        OffsetForLeaderEpochResponseTopic(
            topic=topic.topic,
            partitions=[_answer(broker, topic.topic, part, asker) for part in topic.partitions],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(
    broker: Broker, topic: str, part: OffsetForLeaderEpochRequestPartition, asker: RequestContext | None
) -> OffsetForLeaderEpochResponsePartition:
    answer = OffsetForLeaderEpochResponsePartition(partition=part.partition)
    try:
        if asker is not None:
            broker.rights.check(asker, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        partition = broker.partitions.find_led(topic, part.partition)
        partition.check_epoch(part.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(part.leader_epoch)
    except ApiError as error:
        answer.error_code = error.error
    return answer
