"""AddPartitionsToTxn (0-5): a transaction is about to write to partitions, or is asked whether it has them.

To version 3 it comes from a client, with one transaction; from 4 on from brokers, with any number, each of which may
be "verify only". If one of the partitions does not exist, none of its transaction is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import for_each
from penstock.broker.requests import RequestContext
from penstock.broker.topics import INTERNAL_TOPICS
from penstock.security.acls import Operation, ResourceType
from penstock.transactions.transaction import FIRST_PROTOCOL, SECOND_PROTOCOL
from penstock.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    AddPartitionsToTxnResponseTransaction,
)

MANY_SINCE = 4
KNOWS_FENCED_SINCE = 2


async def handle(
    broker: Broker, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.version < MANY_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _add_for_client(broker, request, context))
    if not broker.rights.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    results = await for_each(request.transactions, partial(_add_for_broker, broker))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add_for_client(
    broker: Broker, request: AddPartitionsToTxnRequest, context: RequestContext
) -> list[AddPartitionsToTxnResponseTopic]:
    producer = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partitions = _partitions(request.v3_and_below_topics)
    transactional_id = request.v3_and_below_transactional_id
    outcome = _refused(broker, transactional_id, partitions, context)
    outcome = outcome or await _add(broker, transactional_id, producer, partitions, FIRST_PROTOCOL)
    if context.version < KNOWS_FENCED_SINCE:
        outcome = {
            name: Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED else error
            for name, error in outcome.items()
        }
    return _results(request.v3_and_below_topics, outcome)


def _refused(
    broker: Broker, transactional_id: str, partitions: Sequence[TopicPartition], context: RequestContext
) -> Mapping[TopicPartition, Error]:
    """What a client may not do; empty if it may. If one partition is refused, the others are not attempted."""
    if not broker.rights.allows(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(partitions, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    topics = dict.fromkeys(name.topic for name in partitions)
    _, denied = broker.rights.sorted_out(context, Operation.WRITE, ResourceType.TOPIC, topics, lambda topic: topic)
    denied += [topic for topic in INTERNAL_TOPICS if topic in topics]  # only brokers write to these
    if not denied:
        return {}
    return {
        name: Error.TOPIC_AUTHORIZATION_FAILED
        if name.topic in denied
        else Error.OPERATION_NOT_ATTEMPTED
        if _exists(broker, name)
        else Error.UNKNOWN_TOPIC_OR_PARTITION
        for name in partitions
    }


async def _add_for_broker(
    broker: Broker, asked: AddPartitionsToTxnRequestTransaction
) -> AddPartitionsToTxnResponseTransaction:
    producer = ProducerEpoch(asked.producer_id, asked.producer_epoch)
    partitions = _partitions(asked.topics)
    protocol = None if asked.verify_only else SECOND_PROTOCOL
    outcome = await _add(broker, asked.transactional_id, producer, partitions, protocol)
    return AddPartitionsToTxnResponseTransaction(
        transactional_id=asked.transactional_id, topic_results=_results(asked.topics, outcome)
    )


async def _add(
    broker: Broker,
    transactional_id: str,
    producer: ProducerEpoch,
    partitions: Sequence[TopicPartition],
    protocol: int | None,
) -> Mapping[TopicPartition, Error]:
    """Add partitions in this protocol, or only verify them (None)."""
    unknown = {name for name in partitions if not _exists(broker, name)}
    if unknown:
        return {
            name: Error.UNKNOWN_TOPIC_OR_PARTITION if name in unknown else Error.OPERATION_NOT_ATTEMPTED
            for name in partitions
        }
    if not transactional_id:
        return dict.fromkeys(partitions, Error.INVALID_REQUEST)
    try:
        log = broker.transactions.of_key(transactional_id)
        if protocol is None:
            answer: Mapping[TopicPartition, Error] = await log.ask(
                lambda machine, token, now: machine.verify_partitions(
                    token, transactional_id, producer, partitions, now
                )
            )
            return answer
        error: Error = await log.ask(
            lambda machine, token, now: machine.add_partitions(
                token, transactional_id, producer, partitions, protocol, now
            )
        )
    except ApiError as refused:
        error = refused.error
    return dict.fromkeys(partitions, error)


def _exists(broker: Broker, name: TopicPartition) -> bool:
    topic = broker.view.topics.get(name.topic)
    return topic is not None and 0 <= name.partition < len(topic.partitions)


def _partitions(topics: Sequence[AddPartitionsToTxnRequestTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _results(
    topics: Sequence[AddPartitionsToTxnRequestTopic], outcome: Mapping[TopicPartition, Error]
) -> list[AddPartitionsToTxnResponseTopic]:
    return [
        AddPartitionsToTxnResponseTopic(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponsePartition(
                    partition_index=index, partition_error_code=outcome[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
