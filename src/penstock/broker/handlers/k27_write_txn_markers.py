"""WriteTxnMarkers (1-2): write into partitions that transactions were committed or aborted.

Coordinators send it to the leaders of a transaction's partitions, and tools to end a transaction that nobody ends. Each
partition gets its markers in the order of the request; the answer has one entry for each producer. One partition that
takes long (a replica that lags behind) does not keep the others from being told: it is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.broker import Broker
from penstock.broker.markers import Ending
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)

WRITTEN_AT_ONCE_MAX = 500  # markers; then others get their turn
COMMITTED_WITHIN_S = 10.0
_SHARD_IS_AWAY = (Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)

Errors = dict[int, dict[TopicPartition, Error]]  # by producer id


async def handle(broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    endings: dict[TopicPartition, list[Ending]] = {}
    errors: Errors = {}
    may_write = broker.rights.allows(context, Operation.ALTER, ResourceType.CLUSTER, is_told=False)
    may_write = may_write or broker.rights.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    for marker in request.markers:
        for name in dict.fromkeys(_partitions_of(marker)):
            of_producer = errors.setdefault(marker.producer_id, {})
            try:
                if not may_write:
                    raise ApiError(Error.CLUSTER_AUTHORIZATION_FAILED)
                broker.partitions.find_led(*name)
            except ApiError as refused:
                of_producer[name] = refused.error
            else:
                endings.setdefault(name, []).append(_ending(marker))
    await asyncio.gather(*(_write(broker, name, each, errors) for name, each in endings.items()))
    return WriteTxnMarkersResponse(markers=[_answer(producer_id, found) for producer_id, found in errors.items()])


def _partitions_of(marker: WriteTxnMarkersRequestMarker) -> Iterator[TopicPartition]:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index)


def _ending(marker: WriteTxnMarkersRequestMarker) -> Ending:
    return Ending(
        ProducerEpoch(marker.producer_id, marker.producer_epoch),
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )


async def _write(broker: Broker, name: TopicPartition, endings: list[Ending], errors: Errors) -> None:
    for start in range(0, len(endings), WRITTEN_AT_ONCE_MAX):
        some = endings[start : start + WRITTEN_AT_ONCE_MAX]
        try:
            async with asyncio.timeout(COMMITTED_WITHIN_S):
                outcomes = await broker.markers.append(name, some, lambda: True)
        except TimeoutError:
            outcomes = [Error.REQUEST_TIMED_OUT for _ in some]
        for ending, outcome in zip(some, outcomes, strict=True):
            told = Error.NOT_LEADER_OR_FOLLOWER if outcome in _SHARD_IS_AWAY else outcome
            errors[ending.producer.producer_id][name] = told
        await asyncio.sleep(0)


def _answer(producer_id: int, errors: dict[TopicPartition, Error]) -> WriteTxnMarkersResponseMarker:
    topics: dict[str, WriteTxnMarkersResponseTopic] = {}
    for name, error in errors.items():
        topic = topics.setdefault(name.topic, WriteTxnMarkersResponseTopic(name=name.topic))
        topic.partitions.append(WriteTxnMarkersResponsePartition(partition_index=name.partition, error_code=error))
    return WriteTxnMarkersResponseMarker(producer_id=producer_id, topics=list(topics.values()))
