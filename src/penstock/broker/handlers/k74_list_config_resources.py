"""ListConfigResources (0-1): what has settings. Version 0 asks only for client metrics, of which there are none."""

from __future__ import annotations

from penstock.base.errors import Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.config_resources import BROKER, TOPIC
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListConfigResourcesResponseResource,
)

CLIENT_METRICS = 16
BROKER_LOGGER = 8
GROUP = 32
_KNOWN = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}


def handle(broker: Broker, request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    if not broker.rights.allows(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return ListConfigResourcesResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    wanted = set(request.resource_types) or _KNOWN
    if context.version == 0:
        wanted = {CLIENT_METRICS}
    if not wanted <= _KNOWN:
        return ListConfigResourcesResponse(error_code=Error.UNSUPPORTED_VERSION)
    resources = []
    if TOPIC in wanted:
        resources += [(name, TOPIC) for name in sorted(broker.view.topics)]
    if BROKER in wanted:
        resources += [(str(node_id), BROKER) for node_id in broker.view.brokers]
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponseResource(resource_name=name, resource_type=kind) for name, kind in resources
        ]
    )
