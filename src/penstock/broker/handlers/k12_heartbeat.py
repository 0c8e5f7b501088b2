"""Heartbeat (0-4): a member of a classic group is alive, and asks whether the group rebalances."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(broker: Broker, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    try:
        broker.rights.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        log = broker.groups.of_key(request.group_id)
        response: HeartbeatResponse = await log.ask(lambda shard, token, now: shard.heartbeat(token, request, now))
    except ApiError as refused:
        # Every member has a whole session from the moment the groups are read: until then all are alive.
        is_loading = refused.error is Error.COORDINATOR_LOAD_IN_PROGRESS
        response = HeartbeatResponse(error_code=Error.NONE if is_loading else refused.error)
    return response
