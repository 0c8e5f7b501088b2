"""PrepareTransactions (20000, Penstock's own): transactions of a name wait for the commit of their batch."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.transactions.names import MARK
from penstock.wire.messages.k20000_prepare_transactions import PrepareTransactionsRequest, PrepareTransactionsResponse


async def handle(
    broker: Broker, request: PrepareTransactionsRequest, context: RequestContext
) -> PrepareTransactionsResponse:
    try:
        for name in (request.name, *(each.transactional_id for each in request.transactions)):
            broker.rights.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        response: PrepareTransactionsResponse = await broker.transactions.of_key(MARK + request.name).ask(
            lambda machine, token, now: machine.many.prepare(token, request, now)
        )
    except ApiError as refused:
        return PrepareTransactionsResponse(error_code=refused.error, error_message=refused.message)
    return response
