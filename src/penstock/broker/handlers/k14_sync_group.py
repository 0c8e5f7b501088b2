"""SyncGroup (0-5): a member's part of the assignment, as soon as the leader has handed it in."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5


async def handle(broker: Broker, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    if context.version >= PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=Error.INCONSISTENT_GROUP_PROTOCOL)
    try:
        broker.rights.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        log = broker.groups.of_key(request.group_id)
        response: SyncGroupResponse = await log.ask(lambda shard, token, now: shard.sync_group(token, request, now))
    except ApiError as refused:
        return SyncGroupResponse(error_code=refused.error)
    return response
