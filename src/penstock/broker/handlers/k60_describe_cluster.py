"""DescribeCluster (0-2): the cluster's id, its controller and its brokers; on request those too that are away.

A broker that is away is known by its id alone: where it listened went with its registration.
"""

from __future__ import annotations

from penstock.base.errors import Error
from penstock.broker.authorized_operations import NOT_ASKED
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)

BROKERS = 1
CONTROLLERS = 2


def handle(broker: Broker, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=Error.MISMATCHED_ENDPOINT_TYPE if known else Error.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is the address of a broker; ask for brokers",
        )
    is_asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=broker.view.cluster_id,
        controller_id=broker.view.controller_id,
        brokers=[
            DescribeClusterResponseBroker(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.nodes(context.connection.listener_name)
        ]
        + (_away(broker) if request.include_fenced_brokers else []),
        cluster_authorized_operations=broker.rights.describe_cluster_operations(context) if is_asked else NOT_ASKED,
    )


def _away(broker: Broker) -> list[DescribeClusterResponseBroker]:
    return [
        DescribeClusterResponseBroker(broker_id=broker_id, host="", port=-1, is_fenced=True)
        for broker_id in broker.view.admitted.away
        if broker_id not in broker.view.brokers
    ]
