"""InitProducerId (0-5): an id that no producer ever had, for a producer that wants to be idempotent.

A transactional id is refused until this broker has a transaction coordinator; clients do not ask, because the APIs of
transactions are not advertised.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k22_init_producer_id import API as API
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NONE = -1


async def handle(broker: Broker, request: InitProducerIdRequest, _context: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return _refusal(Error.COORDINATOR_NOT_AVAILABLE if request.transactional_id else Error.INVALID_REQUEST)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refusal(Error.INVALID_REQUEST)
    try:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.next_id(), producer_epoch=0)
    except ApiError as refused:
        return _refusal(refused.error)


def _refusal(error: Error) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=NONE)
