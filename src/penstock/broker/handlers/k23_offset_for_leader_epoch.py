"""OffsetForLeaderEpoch (2-4): where a leader epoch ended in this log, so that a reader finds where histories part."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)


def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, _context: RequestContext
) -> OffsetForLeaderEpochResponse:
    topics = [
        OffsetForLeaderEpochResponseTopic(
            topic=topic.topic, partitions=[_answer(broker, topic.topic, part) for part in topic.partitions]
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(
    broker: Broker, topic: str, part: OffsetForLeaderEpochRequestPartition
) -> OffsetForLeaderEpochResponsePartition:
    answer = OffsetForLeaderEpochResponsePartition(partition=part.partition)
    try:
        partition = broker.partitions.find_led(topic, part.partition)
        partition.check_epoch(part.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(part.leader_epoch)
    except ApiError as error:
        answer.error_code = error.error
    return answer
