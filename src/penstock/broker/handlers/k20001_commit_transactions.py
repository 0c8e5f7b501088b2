"""CommitTransactions (20001, Penstock's own): commit many producers of a name as one."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.transactions.names import MARK
from penstock.wire.messages.k20001_commit_transactions import CommitTransactionsRequest, CommitTransactionsResponse


async def handle(
    broker: Broker, request: CommitTransactionsRequest, context: RequestContext
) -> CommitTransactionsResponse:
    try:
        for name in (request.name, *(each.transactional_id for each in request.transactions)):
            broker.rights.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        response: CommitTransactionsResponse = await broker.transactions.of_key(MARK + request.name).ask(
            lambda machine, token, now: machine.many.commit(token, request, now)
        )
    except ApiError as refused:
        return CommitTransactionsResponse(error_code=refused.error, error_message=refused.message)
    return response
