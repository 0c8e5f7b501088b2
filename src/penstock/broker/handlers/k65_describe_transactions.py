"""DescribeTransactions (0): state and partitions of transactional ids, each answered by its shard."""

from __future__ import annotations

from functools import partial

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Step
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import for_each
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransaction,
)


async def handle(
    broker: Broker, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    ids = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=await for_each(ids, partial(_describe, broker, context)))


async def _describe(
    broker: Broker, context: RequestContext, transactional_id: str
) -> DescribeTransactionsResponseTransaction:
    if not transactional_id:
        return DescribeTransactionsResponseTransaction(error_code=Error.INVALID_REQUEST)
    try:
        broker.rights.check(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        described: DescribeTransactionsResponseTransaction = await broker.transactions.of_key(transactional_id).ask(
            lambda machine, token, _now: Step(answers=[(token, machine.describe(transactional_id))])
        )
    except ApiError as refused:
        return DescribeTransactionsResponseTransaction(error_code=refused.error, transactional_id=transactional_id)
    described.topics, _ = broker.rights.sorted_out(
        context, Operation.DESCRIBE, ResourceType.TOPIC, described.topics, lambda topic: topic.topic, is_told=False
    )
    return described
