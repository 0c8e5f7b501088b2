"""DeleteGroups (0-2): forget groups without members, and their offsets."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import for_each
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k42_delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseGroup,
)


async def handle(broker: Broker, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=await for_each(names, lambda group_id: _delete(broker, group_id, context)))


async def _delete(broker: Broker, group_id: str, context: RequestContext) -> DeleteGroupsResponseGroup:
    try:
        broker.rights.check(context, Operation.DELETE, ResourceType.GROUP, group_id)
        log = broker.groups.of_key(group_id)
        result: DeleteGroupsResponseGroup = await log.ask(
            lambda shard, token, _now: shard.delete_group(token, group_id)
        )
    except ApiError as refused:
        return DeleteGroupsResponseGroup(group_id=group_id, error_code=refused.error)
    if result.error_code == Error.NONE:
        broker.audit.record("group_deleted", group=group_id, principal=context.principal)
    return result
