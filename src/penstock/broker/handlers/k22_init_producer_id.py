"""InitProducerId (0-5): an id that no producer ever had, or the next epoch of a transactional id.

The new id is for a producer that wants to be idempotent. A transactional id is its shard's to decide; if that may need
a new producer id, the handler brings one.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NONE = -1
KNOWS_FENCED_SINCE = 4


async def handle(broker: Broker, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or request.transactional_id == "":
        return _refusal(Error.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            if not broker.rights.allows_some(context, Operation.WRITE, ResourceType.TOPIC):
                broker.rights.check(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
            return InitProducerIdResponse(producer_id=await broker.producer_ids.next_id(), producer_epoch=0)
        broker.rights.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        response = await _initialise(broker, request.transactional_id, request)
    except ApiError as refused:
        return _refusal(refused.error)
    if response.error_code == Error.PRODUCER_FENCED and context.version < KNOWS_FENCED_SINCE:
        response.error_code = Error.INVALID_PRODUCER_EPOCH
    return response


async def _initialise(broker: Broker, transactional_id: str, request: InitProducerIdRequest) -> InitProducerIdResponse:
    log = broker.transactions.of_key(transactional_id)
    is_wanted = log.machine.wants_producer_id(transactional_id)
    new_producer_id = await broker.producer_ids.next_id() if is_wanted else None
    response: InitProducerIdResponse = await log.ask(
        lambda machine, token, now: machine.init_producer_id(token, request, new_producer_id, now)
    )
    return response


def _refusal(error: Error) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=NONE)
