"""DeleteRecords (0-2): move the start of logs forward; -1 means to the high watermark."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.broker.topics import INTERNAL_TOPICS
from penstock.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)

TO_HIGH_WATERMARK = -1


async def handle(broker: Broker, request: DeleteRecordsRequest, _context: RequestContext) -> DeleteRecordsResponse:
    topics = [
        DeleteRecordsResponseTopic(
            name=topic.name, partitions=[await _delete(broker, topic.name, part) for part in topic.partitions]
        )
        for topic in request.topics
    ]
    return DeleteRecordsResponse(topics=topics)


async def _delete(broker: Broker, topic: str, part: DeleteRecordsRequestPartition) -> DeleteRecordsResponsePartition:
    try:
        partition = broker.partitions.find(topic, part.partition_index)
        if topic in INTERNAL_TOPICS:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, f"only the broker itself deletes records of {topic}")
        if not partition.log.config.deletes:
            raise ApiError(Error.POLICY_VIOLATION, "records of a topic that is only compacted cannot be deleted")
        offset = partition.high_watermark if part.offset == TO_HIGH_WATERMARK else part.offset
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(Error.OFFSET_OUT_OF_RANGE)
        await broker.partitions.delete_records(partition, offset)
    except ApiError as error:
        return DeleteRecordsResponsePartition(
            partition_index=part.partition_index, low_watermark=-1, error_code=error.error
        )
    return DeleteRecordsResponsePartition(
        partition_index=part.partition_index, low_watermark=partition.log.start_offset
    )
