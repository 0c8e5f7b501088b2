"""Stopping without anybody noticing: before a broker stops, others lead what it leads.

The broker that wants to stop asks the controller (LeaveCluster) until it leads nothing any more, or nobody can take the
rest, or the time is over. It serves on meanwhile. The controller gives it no more leaderships from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.peers import PeerError
from penstock.controller.elections import controlled_shutdown, led_by
from penstock.controller.plan import ClusterState, Plan
from penstock.wire.messages.k20005_leave_cluster import API as LEAVE_CLUSTER
from penstock.wire.messages.k20005_leave_cluster import LeaveClusterRequest, LeaveClusterResponse
from penstock.zookeeper.errors import CoordinationError

logger = logging.getLogger(__name__)

LEAVE_S_MAX = 15.0
ANSWER_S_MAX = 5.0
RETRY_S = 0.2


async def leave(broker: Broker) -> None:
    """Hand over what this broker leads, where there is somebody to take it."""
    others = broker.view.brokers.keys() - {broker.node_id}
    if not others or not broker.settings.flag("controlled.shutdown.enable") or not broker.membership.is_admitted:
        return
    try:
        async with asyncio.timeout(LEAVE_S_MAX):
            while (left := await _led_after_asking(broker)) != 0:
                if left is not None and not broker.view.brokers.keys() - {broker.node_id}:
                    break
                await asyncio.sleep(RETRY_S)
            await broker.view.refresh()  # clients are told of the new leaders from now on
    except TimeoutError:
        logger.warning("this broker stops although it leads partitions that nobody could take over in time")
    except CoordinationError as error:
        logger.warning("this broker stops without handing over what it leads: %s", error)


async def _led_after_asking(broker: Broker) -> int | None:
    """How many partitions this broker still leads; None if nobody could say."""
    request = LeaveClusterRequest(broker_id=broker.node_id, broker_epoch=broker.membership.epoch)
    try:
        if broker.role.is_controller:
            answer = await let_leave(broker, request)
        elif broker.view.controller_id < 0:
            return None
        else:
            answer = await broker.peers.ask(broker.view.controller_id, LEAVE_CLUSTER, request, timeout_s=ANSWER_S_MAX)
    except PeerError as error:
        logger.info("the controller does not answer a broker that leaves: %s", error)
        return None
    if answer.error_code == Error.STALE_BROKER_EPOCH:
        return 0  # not a member in this life: it leads nothing
    return None if answer.error_code else answer.led_partitions


async def let_leave(broker: Broker, request: LeaveClusterRequest) -> LeaveClusterResponse:
    """The controller's part. The answer comes when the other brokers know the new leaders."""
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
