"""DeleteGroups (0-2): forget groups without members, and their offsets."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k42_delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseGroup,
)


async def handle(broker: Broker, request: DeleteGroupsRequest, _context: RequestContext) -> DeleteGroupsResponse:
    results = [await _delete(broker, group_id) for group_id in dict.fromkeys(request.groups_names)]
    return DeleteGroupsResponse(results=results)


async def _delete(broker: Broker, group_id: str) -> DeleteGroupsResponseGroup:
    try:
        log = broker.groups.of_key(group_id)
        result: DeleteGroupsResponseGroup = await log.ask(
            lambda shard, token, _now: shard.delete_group(token, group_id)
        )
    except ApiError as refused:
        return DeleteGroupsResponseGroup(group_id=group_id, error_code=refused.error)
    return result
