"""ConsumerGroupHeartbeat (0-1): join, stay in and leave a group of the new protocol."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import caller_of, check_served
from penstock.broker.requests import RequestContext
from penstock.broker.rights import HotAsker
from penstock.groups.pattern_sights import Sight
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    caller = caller_of(context)._replace(sight=_sight(broker, context))
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


def _sight(broker: Broker, context: RequestContext) -> Sight | None:
    """Which topics a regular expression can find; it outlives the request, and must not keep its connection."""
    if not broker.rights.is_on or context.is_broker_itself:
        return None
    who = HotAsker(context.principal, context.host, context.api_key)
    return Sight(
        broker.rights.version,
        lambda topic: broker.rights.allows(who, Operation.DESCRIBE, ResourceType.TOPIC, topic, is_told=False),
    )
