"""FindCoordinator (0-6): which broker looks after a group or a transactional id.

The internal topic behind it is made on first use; the key's partition of it decides, and its leader answers.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker, Node
from penstock.broker.handlers.group_callers import for_each
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

MANY_KEYS_SINCE = 4
GROUP, TRANSACTION = 0, 1
_NOWHERE = Node(-1, "", -1, None)


async def handle(broker: Broker, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.version >= MANY_KEYS_SINCE:
        return FindCoordinatorResponse(
            coordinators=await for_each(
                request.coordinator_keys, lambda key: _coordinator(broker, key, request.key_type, context)
            )
        )
    found = await _coordinator(broker, request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _coordinator(
    broker: Broker, key: str, key_type: int, context: RequestContext
) -> FindCoordinatorResponseCoordinator:
    error = Error.NONE
    message: str | None = None
    try:
        node = await _find(broker, key, key_type, context)
    except ApiError as refused:
        node, error, message = _NOWHERE, refused.error, refused.message
    return FindCoordinatorResponseCoordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=error, error_message=message
    )


async def _find(broker: Broker, key: str, key_type: int, context: RequestContext) -> Node:
    if key_type not in (GROUP, TRANSACTION):
        raise ApiError(Error.INVALID_REQUEST, f"there are no coordinators of type {key_type} here")
    kind = ResourceType.GROUP if key_type == GROUP else ResourceType.TRANSACTIONAL_ID
    broker.rights.check(context, Operation.DESCRIBE, kind, key)
    shards = broker.groups if key_type == GROUP else broker.transactions
    try:
        await broker.topics.create_internal(shards.topic)
    except ApiError as error:
        if error.error.retriable:  # whatever it is, clients ask again after this one
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE, error.message) from error
        raise
    leader_id = shards.leader_of(key)
    for node in broker.nodes(context.connection.listener_name):
        if node.node_id == leader_id:
            return node
    raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)
