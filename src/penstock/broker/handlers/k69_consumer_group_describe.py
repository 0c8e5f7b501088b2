"""ConsumerGroupDescribe (0-1): state and members of groups of the new protocol; each is asked where it lives."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.authorized_operations import GROUP_OPERATIONS
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import check_served, for_each
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseGroup,
)


async def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, _context: RequestContext
) -> ConsumerGroupDescribeResponse:
    once = dict.fromkeys(request.group_ids)  # a large group a thousand times would be an answer without end
    groups = await for_each(once, lambda group_id: _describe(broker, group_id))
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == Error.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(broker: Broker, group_id: str) -> ConsumerGroupDescribeResponseGroup:
    try:
        check_served(broker)
        if not group_id:
            raise ApiError(Error.INVALID_GROUP_ID)
        log = broker.groups.of_key(group_id)
        described: ConsumerGroupDescribeResponseGroup = await log.ask(
            lambda shard, token, _now: shard.describe_consumer_group(token, group_id)
        )
    except ApiError as refused:
        return ConsumerGroupDescribeResponseGroup(group_id=group_id, error_code=refused.error)
    return described
