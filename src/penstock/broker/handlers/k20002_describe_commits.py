"""DescribeCommits (20002, Penstock's own): what is known of names; without a list, of all that this broker has."""

from __future__ import annotations

from functools import partial
from itertools import chain

from penstock.base.errors import ApiError
from penstock.base.steps import Step
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import for_each
from penstock.broker.requests import RequestContext
from penstock.transactions.names import MARK
from penstock.wire.messages.k20002_describe_commits import (
    DescribeCommitsRequest,
    DescribeCommitsResponse,
    DescribeCommitsResponseName,
)


async def handle(broker: Broker, request: DescribeCommitsRequest, _context: RequestContext) -> DescribeCommitsResponse:
    if request.names is not None:
        names = dict.fromkeys(request.names)
        return DescribeCommitsResponse(names=await for_each(names, partial(_describe, broker)))
    try:
        found = await broker.transactions.ask_all(
            lambda machine, token, _now: Step(answers=[(token, [*map(machine.many.describe, machine.many.names())])])
        )
    except ApiError as refused:
        return DescribeCommitsResponse(error_code=refused.error)
    return DescribeCommitsResponse(names=[*chain.from_iterable(found)])


async def _describe(broker: Broker, name: str) -> DescribeCommitsResponseName:
    try:
        described: DescribeCommitsResponseName = await broker.transactions.of_key(MARK + name).ask(
            lambda machine, token, _now: Step(answers=[(token, machine.many.describe(name))])
        )
    except ApiError as refused:
        return DescribeCommitsResponseName(error_code=refused.error, error_message=refused.message, name=name)
    return described
