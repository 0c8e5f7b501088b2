"""ConsumerGroupHeartbeat (0-1): join, stay in and leave a group of the new protocol."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import caller_of, check_served
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    caller = caller_of(context)
    try:
        check_served(broker)
        broker.rights.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        for topic in request.subscribed_topic_names or ():
            broker.rights.check(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        log = broker.groups.of_key(request.group_id)
        response: ConsumerGroupHeartbeatResponse = await log.ask(
            lambda shard, token, now: shard.consumer_group_heartbeat(token, request, caller, now)
        )
    except ApiError as refused:
        return ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=refused.message)
    return response
