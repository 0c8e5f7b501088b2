"""ListGroups (0-5): the groups of both kinds that this broker looks after, by state and type if asked."""

from __future__ import annotations

from itertools import chain

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse


async def handle(broker: Broker, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    states = frozenset(state.lower() for state in request.states_filter)
    types = frozenset(group_type.lower() for group_type in request.types_filter)
    try:
        found = await broker.groups.ask_all(lambda shard, token, _now: shard.list_groups(token, states, types))
    except ApiError as refused:
        return ListGroupsResponse(error_code=refused.error)
    groups = [*chain.from_iterable(found)]
    if not broker.rights.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, is_told=False):
        groups, _ = broker.rights.sorted_out(
            context, Operation.DESCRIBE, ResourceType.GROUP, groups, lambda group: group.group_id, is_told=False
        )
    return ListGroupsResponse(groups=groups)
