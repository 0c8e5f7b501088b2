"""DescribeTransactions (0): state and partitions of transactional ids, each answered by its shard."""

from __future__ import annotations

from functools import partial

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Step
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import for_each
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransaction,
)


async def handle(
    broker: Broker, request: DescribeTransactionsRequest, _context: RequestContext
) -> DescribeTransactionsResponse:
    ids = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=await for_each(ids, partial(_describe, broker)))


async def _describe(broker: Broker, transactional_id: str) -> DescribeTransactionsResponseTransaction:
    if not transactional_id:
        return DescribeTransactionsResponseTransaction(error_code=Error.INVALID_REQUEST)
    try:
        described: DescribeTransactionsResponseTransaction = await broker.transactions.of_key(transactional_id).ask(
            lambda machine, token, _now: Step(answers=[(token, machine.describe(transactional_id))])
        )
    except ApiError as refused:
        return DescribeTransactionsResponseTransaction(error_code=refused.error, transactional_id=transactional_id)
    return described
