"""AlterPartition (2-3): leaders ask the controller for other in-sync replicas. Between brokers only."""

from __future__ import annotations

from penstock.base.errors import Error
from penstock.broker.alter_partition import answer_to
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k56_alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def handle(broker: Broker, request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
    if not broker.rights.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AlterPartitionResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    return await answer_to(broker.role, request)
