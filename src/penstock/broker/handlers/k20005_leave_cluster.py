"""LeaveCluster (20005, Penstock's own, to the controller): others lead what a broker that is about to stop leads.

How many partitions it still leads is in the answer: what nobody else can lead now.
"""

from __future__ import annotations

from penstock.base.errors import Error
from penstock.broker.broker import Broker
from penstock.broker.leaving import let_leave
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k20005_leave_cluster import LeaveClusterRequest, LeaveClusterResponse


async def handle(broker: Broker, request: LeaveClusterRequest, context: RequestContext) -> LeaveClusterResponse:
    if not broker.rights.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return LeaveClusterResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    return await let_leave(broker, request)
