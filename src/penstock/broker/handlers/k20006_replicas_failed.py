"""ReplicasFailed (20006, Penstock's own): a broker tells the controller which of its replicas cannot go on."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.failed_replicas import answer_to
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k20006_replicas_failed import ReplicasFailedRequest, ReplicasFailedResponse


async def handle(broker: Broker, request: ReplicasFailedRequest, _context: RequestContext) -> ReplicasFailedResponse:
    return await answer_to(broker.role, request)
