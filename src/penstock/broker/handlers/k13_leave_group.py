"""LeaveGroup (0-5): members leave a classic group. Before version 3 it is always one, and the error is the answer's."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse

MANY_MEMBERS_SINCE = 3
MEMBERS_MAX = 10_000


async def handle(broker: Broker, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    if context.version < MANY_MEMBERS_SINCE:
        request.members = [LeaveGroupRequestMember(member_id=request.member_id)]
    if len(request.members) > MEMBERS_MAX:
        return LeaveGroupResponse(error_code=Error.INVALID_REQUEST)
    try:
        broker.rights.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        log = broker.groups.of_key(request.group_id)
        response: LeaveGroupResponse = await log.ask(lambda shard, token, now: shard.leave_group(token, request, now))
    except ApiError as refused:
        return LeaveGroupResponse(error_code=refused.error)
    if context.version < MANY_MEMBERS_SINCE and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response
