"""LeaveCluster (20005, Penstock's own, to the controller): others lead what a broker that is about to stop leads.

How many partitions it still leads is in the answer: what nobody else can lead now.
"""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.leaving import let_leave
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k20005_leave_cluster import LeaveClusterRequest, LeaveClusterResponse


async def handle(broker: Broker, request: LeaveClusterRequest, _context: RequestContext) -> LeaveClusterResponse:
    return await let_leave(broker, request)
