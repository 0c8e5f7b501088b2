"""UnregisterBroker (0): forget a broker that is gone for good. It must hold no replicas any more."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.controller.membership import unregister
from penstock.wire.messages.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(broker: Broker, request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    broker_id = request.broker_id
    try:
        deletions = await broker.role.pending_deletions()
        await broker.role.decide(
            lambda state: unregister(state, broker_id, deletions, broker.view.config_version("brokers", str(broker_id)))
        )
    except ApiError as error:
        return refused(request, error)
    broker.audit.record("broker_unregistered", broker_id=broker_id, principal=context.principal, host=context.host)
    return UnregisterBrokerResponse()


def refused(_request: UnregisterBrokerRequest, error: ApiError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.error, error_message=error.message)
