"""JoinGroup (0-9): become a member of a classic group. The answer comes when everybody else has joined too."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import caller_of
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse

NULL_PROTOCOL_NAME_SINCE = 7


async def handle(broker: Broker, request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    caller = caller_of(context)
    try:
        broker.rights.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        log = broker.groups.of_key(request.group_id)
        response: JoinGroupResponse = await log.ask(
            lambda shard, token, now: shard.join_group(token, request, caller, now)
        )
    except ApiError as refused:
        response = JoinGroupResponse(error_code=refused.error, protocol_name=None, member_id=request.member_id)
    if response.protocol_name is None and context.version < NULL_PROTOCOL_NAME_SINCE:
        response.protocol_name = ""
    return response
