"""ListTransactions (0-2): the transactional ids of this broker, by state, producer, age and pattern.

A pattern is RE2's and must match the whole id. There may be many ids, so it is tried in portions, and between them
others get their turn.
"""

from __future__ import annotations

import asyncio
from itertools import chain

from penstock.base.errors import ApiError
from penstock.base.steps import Step
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.groups.regular_expressions import compile_pattern
from penstock.security.acls import Operation, ResourceType
from penstock.transactions.transaction import STATE_OF_LABEL
from penstock.wire.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
)

MATCHED_AT_ONCE_MAX = 100


async def handle(broker: Broker, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    unknown = [label for label in dict.fromkeys(request.state_filters) if label not in STATE_OF_LABEL]
    try:
        lists = await broker.transactions.ask_all(
            lambda machine, token, now: Step(answers=[(token, machine.list_transactions(request, now.wall_ms))])
        )
        found: list[ListTransactionsResponseTransaction] = [*chain.from_iterable(lists)]
        if request.transactional_id_pattern:
            found = await _matching(request.transactional_id_pattern, found)
    except ApiError as refused:
        return ListTransactionsResponse(error_code=refused.error, unknown_state_filters=unknown)
    shown, _ = broker.rights.sorted_out(
        context,
        Operation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        found,
        lambda each: each.transactional_id,
        is_told=False,
    )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=shown)


async def _matching(
    pattern: str, found: list[ListTransactionsResponseTransaction]
) -> list[ListTransactionsResponseTransaction]:
    compiled = compile_pattern(pattern)
    matching = []
    for number, each in enumerate(found, 1):
        if compiled.fullmatch(each.transactional_id) is not None:
            matching.append(each)
        if number % MATCHED_AT_ONCE_MAX == 0:
            await asyncio.sleep(0)
    return matching
