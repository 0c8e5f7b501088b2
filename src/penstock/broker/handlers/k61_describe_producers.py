"""DescribeProducers (0): the producers that a partition remembers, and where their open transactions began.

A partition that is named twice is told once: there may be thousands of producers, and an answer has an end.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import topic_name_problem
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.log.producers import ProducerState
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseProducer,
    DescribeProducersResponseTopic,
)


def handle(broker: Broker, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = [
        DescribeProducersResponseTopic(
            name=name, partitions=[_partition(broker, name, index, context) for index in indexes]
        )
        for name, indexes in asked.items()
    ]
    return DescribeProducersResponse(topics=topics)


def _partition(broker: Broker, topic: str, index: int, context: RequestContext) -> DescribeProducersResponsePartition:
    try:
        broker.rights.check(context, Operation.READ, ResourceType.TOPIC, topic)
        problem = topic_name_problem(topic)
        if problem is not None:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, problem)
        partition = broker.partitions.find(topic, index)
    except ApiError as refused:
        return DescribeProducersResponsePartition(
            partition_index=index, error_code=refused.error, error_message=refused.message
        )
    return DescribeProducersResponsePartition(
        partition_index=index, active_producers=[_producer(state) for state in partition.log.producers]
    )


def _producer(state: ProducerState) -> DescribeProducersResponseProducer:
    return DescribeProducersResponseProducer(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.transaction_first_offset,
    )
