"""ReplicasFailed (20006, Penstock's own): a broker tells the controller which of its replicas cannot go on."""

from __future__ import annotations

from penstock.base.errors import Error
from penstock.broker.broker import Broker
from penstock.broker.failed_replicas import answer_to
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k20006_replicas_failed import ReplicasFailedRequest, ReplicasFailedResponse


async def handle(broker: Broker, request: ReplicasFailedRequest, context: RequestContext) -> ReplicasFailedResponse:
    if not broker.rights.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return ReplicasFailedResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    return await answer_to(broker.role, request)
