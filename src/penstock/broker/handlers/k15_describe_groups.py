"""DescribeGroups (0-6): state and members of classic groups; each is asked where it is looked after."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import caller_of, for_each
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k15_describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
)


async def handle(broker: Broker, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    once = dict.fromkeys(request.groups)  # a large group a thousand times would be an answer without end
    groups = await for_each(once, lambda group_id: _describe(broker, group_id, context))
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == Error.NONE:
                group.authorized_operations = broker.rights.operations(context, ResourceType.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=groups)


async def _describe(broker: Broker, group_id: str, context: RequestContext) -> DescribeGroupsResponseGroup:
    caller = caller_of(context)
    try:
        broker.rights.check(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        log = broker.groups.of_key(group_id)
        described: DescribeGroupsResponseGroup = await log.ask(
            lambda shard, token, _now: shard.describe_group(token, group_id, caller)
        )
    except ApiError as refused:
        return DescribeGroupsResponseGroup(group_id=group_id, error_code=refused.error)
    return described
