"""Carrying out what the controller decides: claim the role, write plans, wait until this broker has taken them over.

The decisions are pure (`penstock.controller`); here they meet the coordination service. A decision that was overtaken
(another write came first) changed nothing: the view is read again and it is made anew. One for which the coordination
service has no room is not made, and the client may ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.base.errors import ApiError, Error
from penstock.base.world import Clock
from penstock.broker.cluster_view import ClusterView
from penstock.controller.claim import claim_controller
from penstock.controller.plan import ClusterState, Plan, fenced_writes
from penstock.controller.producer_ids import next_block
from penstock.zookeeper.coordination import Coordination
from penstock.zookeeper.errors import BadVersionError, NodeExistsError, NoNodeError, StorageFullError
from penstock.zookeeper.znodes import ControllerEpoch, ProducerIds

T = TypeVar("T", bound=Sequence[Plan | ApiError])

ATTEMPTS_MAX = 10

Decision = Callable[[ClusterState], T]


class ControllerRole:
    """The controller of the cluster, while this broker is it."""

    def __init__(self, broker_id: int, coordination: Coordination, view: ClusterView, clock: Clock) -> None:
        self._broker_id = broker_id
        self._coordination = coordination
        self._view = view
        self._clock = clock
        self._epoch_version = -1
        self._lock = asyncio.Lock()

    async def claim(self) -> None:
        """Become the controller; NodeExistsError if another broker is."""
        data, stat = await self._coordination.get(ControllerEpoch.PATH)
        claim = claim_controller(self._broker_id, ControllerEpoch.decode(data), stat.version, self._clock.wall_ms())
        await self._coordination.multi(claim.operations)
        self._epoch_version = claim.epoch_version

    async def decide(self, decision: Decision[T]) -> T:
        """Make a decision, carry out its plans, and return it once this broker's view contains them."""
        async with self._lock:
            for _ in range(ATTEMPTS_MAX):
                decided = decision(self._view.state(self._epoch_version))
                try:
                    await self._write([plan for plan in decided if isinstance(plan, Plan)])
                except (BadVersionError, NodeExistsError, NoNodeError):
                    await self._view.load()
                    continue
                except StorageFullError as error:
                    raise ApiError(Error.KAFKA_STORAGE_ERROR, str(error)) from error
                return decided
        raise ApiError(Error.REQUEST_TIMED_OUT, "the cluster changed too often in between; try again")

    async def preview(self, decision: Decision[T]) -> T:
        """The decision as it would be made now, without carrying it out."""
        return decision(self._view.state(self._epoch_version))

    async def _write(self, plans: Sequence[Plan]) -> None:
        state = self._view.state(self._epoch_version)
        for write in fenced_writes(state, plans):
            await self._coordination.multi(write.operations)
        if plans:
            await self._view.refresh()


class ProducerIdAllocator:
    """Hands out producer ids from blocks that this broker has taken."""

    def __init__(self, broker_id: int, coordination: Coordination) -> None:
        self._broker_id = broker_id
        self._coordination = coordination
        self._ids = iter(range(0))
        self._lock = asyncio.Lock()

    async def next_id(self) -> int:
        """An id that nobody was ever given before."""
        async with self._lock:
            for producer_id in self._ids:
                return producer_id
            self._ids = iter(await self._take_block())
            return next(self._ids)

    async def _take_block(self) -> range:
        for _ in range(ATTEMPTS_MAX):
            data, stat = await self._coordination.get(ProducerIds.PATH)
            block = next_block(ProducerIds.decode(data), stat.version, self._broker_id)
            try:
                await self._coordination.multi([block.operation])
            except BadVersionError:
                continue
            except StorageFullError:
                break  # producers retry this error, and not a storage error
            return block.ids
        raise ApiError(Error.COORDINATOR_LOAD_IN_PROGRESS, "producer ids could not be reserved; try again")
