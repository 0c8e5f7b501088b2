"""AwaitChanges (20004, Penstock's own, between brokers): answered when this broker has acted on what was written."""

from __future__ import annotations

import asyncio

from penstock.base.errors import Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k20004_await_changes import AwaitChangesRequest, AwaitChangesResponse

WAIT_S_MAX = 5.0  # as long as anybody waits for others to know a change


async def handle(broker: Broker, request: AwaitChangesRequest, context: RequestContext) -> AwaitChangesResponse:
    if not broker.rights.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AwaitChangesResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    try:
        async with asyncio.timeout(min(max(request.timeout_ms / 1000, 0.0), WAIT_S_MAX)):
            await broker.view.reached(request.changes_version)
    except TimeoutError:
        return AwaitChangesResponse(error_code=Error.REQUEST_TIMED_OUT)
    return AwaitChangesResponse()
