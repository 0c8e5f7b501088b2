"""DeleteRecords (0-2): move the start of logs forward; -1 means to the high watermark.

The answer comes when all replicas in sync have deleted the records, too: otherwise the next leader could bring them
back.
"""

from __future__ import annotations

import asyncio

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.partition import Partition
from penstock.broker.requests import RequestContext
from penstock.broker.topics import INTERNAL_TOPICS
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)

TO_HIGH_WATERMARK = -1


async def handle(broker: Broker, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    topics = [
        DeleteRecordsResponseTopic(
            name=topic.name,
            partitions=[
                await _delete(broker, topic.name, part, request.timeout_ms, context) for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DeleteRecordsResponse(topics=topics)


async def _delete(
    broker: Broker, topic: str, part: DeleteRecordsRequestPartition, timeout_ms: int, context: RequestContext
) -> DeleteRecordsResponsePartition:
    try:
        broker.rights.check(context, Operation.DELETE, ResourceType.TOPIC, topic)
        partition = broker.partitions.find_led(topic, part.partition_index)
        if topic in INTERNAL_TOPICS:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, f"only the broker itself deletes records of {topic}")
        if not partition.log.config.deletes:
            raise ApiError(Error.POLICY_VIOLATION, "records of a topic that is only compacted cannot be deleted")
        offset = partition.high_watermark if part.offset == TO_HIGH_WATERMARK else part.offset
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(Error.OFFSET_OUT_OF_RANGE)
        before = partition.log.start_offset
        await broker.partitions.delete_records(partition, offset)
        broker.audit.record(
            "records_deleted",
            partition=partition.name,
            from_offset=before,
            to_offset=offset,
            principal=context.principal,
            why="DeleteRecords",
        )
        await _until_all_start_at(partition, offset, timeout_ms / 1000)
    except ApiError as error:
        return DeleteRecordsResponsePartition(
            partition_index=part.partition_index, low_watermark=-1, error_code=error.error
        )
    return DeleteRecordsResponsePartition(
        partition_index=part.partition_index, low_watermark=partition.log.start_offset
    )


async def _until_all_start_at(partition: Partition, offset: int, timeout_s: float) -> None:
    """Returns when no replica in sync has anything before an offset; ApiError if that cannot be known, or not now."""
    leader = partition.require_leader()
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def look() -> None:
        others = leader.maximal_isr - {leader.broker_id}
        has_moved = partition.leader is not leader
        if not done.done() and (has_moved or all(leader.followers[each].log_start_offset >= offset for each in others)):
            done.set_result(None)

    partition.start_waits.append(look)
    try:
        look()
        async with asyncio.timeout(timeout_s):
            await done
    except TimeoutError as error:
        raise ApiError(Error.REQUEST_TIMED_OUT) from error
    finally:
        partition.start_waits.remove(look)
    if partition.leader is not leader:
        raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
