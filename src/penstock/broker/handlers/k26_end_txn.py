"""EndTxn (0-5): commit or abort. From version 5 on the answer has the producer's id and epoch for what comes next."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

KNOWS_FENCED_SINCE = 2
SECOND_PROTOCOL_SINCE = 5


async def handle(broker: Broker, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    if not request.transactional_id:
        return EndTxnResponse(error_code=Error.INVALID_REQUEST)
    try:
        broker.rights.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        response = await _end(broker, request, is_second_protocol=context.version >= SECOND_PROTOCOL_SINCE)
    except ApiError as refused:
        return EndTxnResponse(error_code=refused.error)
    if response.error_code == Error.PRODUCER_FENCED and context.version < KNOWS_FENCED_SINCE:
        response.error_code = Error.INVALID_PRODUCER_EPOCH
    return response


async def _end(broker: Broker, request: EndTxnRequest, *, is_second_protocol: bool) -> EndTxnResponse:
    transactional_id = request.transactional_id
    log = broker.transactions.of_key(transactional_id)
    new_producer_id = None
    if is_second_protocol and log.machine.is_exhausted(transactional_id):
        new_producer_id = await broker.producer_ids.next_id()
    response: EndTxnResponse = await log.ask(
        lambda machine, token, now: machine.end_transaction(
            token, request, new_producer_id, now, is_second_protocol=is_second_protocol
        )
    )
    return response
