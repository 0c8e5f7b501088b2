"""AddOffsetsToTxn (0-4): a transaction is about to commit offsets of a group: it gets the group's partition of the
offsets topic."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.broker.topics import OFFSETS_TOPIC
from penstock.security.acls import Operation, ResourceType
from penstock.transactions.transaction import FIRST_PROTOCOL
from penstock.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

KNOWS_FENCED_SINCE = 2


async def handle(broker: Broker, request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    try:
        broker.rights.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        broker.rights.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        error = await _add(broker, request)
    except ApiError as refused:
        error = refused.error
    if error is Error.PRODUCER_FENCED and context.version < KNOWS_FENCED_SINCE:
        error = Error.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)


async def _add(broker: Broker, request: AddOffsetsToTxnRequest) -> Error:
    if not request.transactional_id:
        return Error.INVALID_REQUEST
    await broker.topics.create_internal(OFFSETS_TOPIC)
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.index_of(request.group_id))
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    error: Error = await broker.transactions.of_key(request.transactional_id).ask(
        lambda machine, token, now: machine.add_partitions(
            token, request.transactional_id, producer, [partition], FIRST_PROTOCOL, now
        )
    )
    return error
