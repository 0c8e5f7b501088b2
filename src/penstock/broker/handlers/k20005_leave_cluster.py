"""LeaveCluster (20005, Penstock's own, to the controller): others lead what a broker that is about to stop leads.

The answer comes when the other brokers know the new leaders, so that clients who are sent away find them. How many
partitions it still leads is in it: what nobody else can lead now.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.controller.elections import controlled_shutdown, led_by
from penstock.controller.plan import ClusterState, Plan
from penstock.wire.messages.k20005_leave_cluster import LeaveClusterRequest, LeaveClusterResponse


async def handle(broker: Broker, request: LeaveClusterRequest, _context: RequestContext) -> LeaveClusterResponse:
    broker_id, role = request.broker_id, broker.role
    led = 0

    def decide(state: ClusterState) -> list[Plan]:
        if state.broker_epochs.get(broker_id) != request.broker_epoch:
            raise ApiError(Error.STALE_BROKER_EPOCH)
        return controlled_shutdown(state, role.rules_of, broker_id)

    def count(state: ClusterState) -> Sequence[Plan]:
        nonlocal led
        led = led_by(state, broker_id)
        return ()

    try:
        await role.decide(decide)
        await role.preview(count)
    except ApiError as error:
        return LeaveClusterResponse(error_code=error.error, error_message=error.message)
    await broker.spreading.to_all()
    return LeaveClusterResponse(led_partitions=led)
