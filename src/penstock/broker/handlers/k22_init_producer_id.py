"""InitProducerId (0-5): an id that no producer ever had, for a producer that wants to be idempotent.

A transactional id is refused until this broker has a transaction coordinator; clients do not ask, because the APIs of
transactions are not advertised.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

KEY = 22


async def handle(broker: Broker, request: InitProducerIdRequest, _context: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        error = Error.COORDINATOR_NOT_AVAILABLE if request.transactional_id else Error.INVALID_REQUEST
        return InitProducerIdResponse(error_code=error)
    try:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.next_id(), producer_epoch=0)
    except ApiError as refused:
        return InitProducerIdResponse(error_code=refused.error)
