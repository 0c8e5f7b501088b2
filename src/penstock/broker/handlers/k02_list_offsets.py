"""ListOffsets (1-11): the offset for a time, or for one of the special times.

    -1 latest   -2 earliest   -3 of the largest timestamp   -4 earliest on this disk   -5, -6 of tiered storage

There is no tiered storage here, so -4 is -2, and -5 and -6 have no answer (offset -1). The end offset is not told
before the high watermark has reached the start of this leader's epoch. Finding a record by its time looks into one
batch, which is read beside the loop.

Only leaders answer. To a follower, which asks when its position is not in the leader's log, the latest offset is the
end of that log; who says to be one needs the right of a broker.
"""

from __future__ import annotations

import logging
from collections import Counter

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.partition import Partition
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)

logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
#: Kafka's replica id for debugging: what is asked for is the copy of this broker, whoever leads.
ANY_REPLICA = -2

_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_READ_COMMITTED = 1


async def handle(broker: Broker, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    topics = []
    is_forged = request.replica_id >= 0 and not broker.rights.allows(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    )
    for topic in request.topics:
        if is_forged or not broker.rights.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics.append(_refused(topic.name, topic.partitions))
            continue
        counts = Counter(part.partition_index for part in topic.partitions)
        answers = [
            await _answer(broker, topic.name, part, request, context.version)
            for part in topic.partitions
            if counts[part.partition_index] == 1
        ]
        answers += [
            ListOffsetsResponsePartition(partition_index=index, error_code=Error.INVALID_REQUEST)
            for index, count in counts.items()
            if count > 1
        ]
        if answers:
            topics.append(ListOffsetsResponseTopic(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _refused(name: str, partitions: list[ListOffsetsRequestPartition]) -> ListOffsetsResponseTopic:
    error = Error.TOPIC_AUTHORIZATION_FAILED
    rows = [ListOffsetsResponsePartition(partition_index=part.partition_index, error_code=error) for part in partitions]
    return ListOffsetsResponseTopic(name=name, partitions=rows)


async def _answer(
    broker: Broker, topic: str, part: ListOffsetsRequestPartition, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponsePartition:
    try:
        if version < _SINCE_VERSION.get(part.timestamp, 0) or part.timestamp < EARLIEST_PENDING_UPLOAD:
            raise ApiError(Error.UNSUPPORTED_VERSION)
        is_of_replica = request.replica_id == ANY_REPLICA
        find = broker.partitions.find if is_of_replica else broker.partitions.find_led
        partition = find(topic, part.partition_index)
        partition.check_epoch(part.current_leader_epoch)
        if (request.replica_id >= 0 or is_of_replica) and part.timestamp == LATEST:
            timestamp, offset, epoch = -1, partition.log.end_offset, partition.epoch
        else:
            timestamp, offset, epoch = await _find(broker, partition, part.timestamp, request.isolation_level)
    except ApiError as error:
        return ListOffsetsResponsePartition(partition_index=part.partition_index, error_code=error.error)
    except OSError as error:
        logger.error("%s-%d: a read failed: %s", topic, part.partition_index, error)
        return ListOffsetsResponsePartition(partition_index=part.partition_index, error_code=Error.KAFKA_STORAGE_ERROR)
    return ListOffsetsResponsePartition(
        partition_index=part.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if version >= 4 else -1,
    )


async def _find(broker: Broker, partition: Partition, timestamp: int, isolation_level: int) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch); -1 where there is nothing to tell."""
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epochs.epoch_of(log.start_offset)
        is_empty = log.start_offset == log.end_offset
        return -1, log.start_offset, partition.epoch if epoch < 0 and is_empty else epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    if not partition.require_leader().has_committed_in_epoch:
        raise ApiError(Error.OFFSET_NOT_AVAILABLE)
    is_committed_only = isolation_level == _READ_COMMITTED
    end_offset = partition.last_stable_offset if is_committed_only else partition.high_watermark
    if timestamp == LATEST:
        return -1, end_offset, partition.epoch
    if timestamp == MAX_TIMESTAMP:
        found = await broker.world.disk.run("read", lambda: log.max_timestamp(end_offset=end_offset))
    else:
        found = await broker.world.disk.run("read", lambda: log.offset_for_timestamp(timestamp, end_offset=end_offset))
    return found if found is not None else (-1, -1, -1)
