"""DescribeCommits (20002, Penstock's own): what is known of names; without a list, of all that this broker has."""

from __future__ import annotations

from functools import partial
from itertools import chain

from penstock.base.errors import ApiError
from penstock.base.steps import Step
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import for_each
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.transactions.names import MARK
from penstock.wire.messages.k20002_describe_commits import (
    DescribeCommitsRequest,
    DescribeCommitsResponse,
    DescribeCommitsResponseName,
)


async def handle(broker: Broker, request: DescribeCommitsRequest, context: RequestContext) -> DescribeCommitsResponse:
    if request.names is not None:
        names = dict.fromkeys(request.names)
        return DescribeCommitsResponse(names=await for_each(names, partial(_describe, broker, context)))
    try:
        found = await broker.transactions.ask_all(
            lambda machine, token, _now: Step(answers=[(token, [*map(machine.many.describe, machine.many.names())])])
        )
    except ApiError as refused:
        return DescribeCommitsResponse(error_code=refused.error)
    shown, _ = broker.rights.sorted_out(
        context,
        Operation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        chain.from_iterable(found),
        lambda each: each.name,
        is_told=False,
    )
    return DescribeCommitsResponse(names=shown)


async def _describe(broker: Broker, context: RequestContext, name: str) -> DescribeCommitsResponseName:
    try:
        broker.rights.check(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        described: DescribeCommitsResponseName = await broker.transactions.of_key(MARK + name).ask(
            lambda machine, token, _now: Step(answers=[(token, machine.many.describe(name))])
        )
    except ApiError as refused:
        return DescribeCommitsResponseName(error_code=refused.error, error_message=refused.message, name=name)
    return described
