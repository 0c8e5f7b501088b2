"""ConsumerGroupDescribe (0-1): state and members of groups of the new protocol; each is asked where it lives."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import check_served, for_each
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseGroup,
)


async def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    once = dict.fromkeys(request.group_ids)  # a large group a thousand times would be an answer without end
    groups = await for_each(once, lambda group_id: _describe(broker, group_id, context))
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == Error.NONE:
                group.authorized_operations = broker.rights.operations(context, ResourceType.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(broker: Broker, group_id: str, context: RequestContext) -> ConsumerGroupDescribeResponseGroup:
    try:
        check_served(broker)
        if not group_id:
            raise ApiError(Error.INVALID_GROUP_ID)
        broker.rights.check(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        log = broker.groups.of_key(group_id)
        described: ConsumerGroupDescribeResponseGroup = await log.ask(
            lambda shard, token, _now: shard.describe_consumer_group(token, group_id)
        )
    except ApiError as refused:
        return ConsumerGroupDescribeResponseGroup(group_id=group_id, error_code=refused.error)
    return _without_hidden(broker, described, context)


def _without_hidden(
    broker: Broker, group: ConsumerGroupDescribeResponseGroup, context: RequestContext
) -> ConsumerGroupDescribeResponseGroup:
    """A group that reads a topic which may not be described is not described either."""
    topics = {
        part.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for part in assignment.topic_partitions
    } | {name for member in group.members for name in member.subscribed_topic_names}
    _, hidden = broker.rights.sorted_out(
        context, Operation.DESCRIBE, ResourceType.TOPIC, sorted(topics), lambda name: name
    )
    if not hidden:
        return group
    return ConsumerGroupDescribeResponseGroup(
        group_id=group.group_id,
        error_code=Error.TOPIC_AUTHORIZATION_FAILED,
        error_message="the group reads topics that may not be described",
    )
