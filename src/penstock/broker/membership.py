"""This broker as a member of the cluster: its registration, which lives as long as its session, and its lease.

Every registration has an epoch of its own (the transaction that created its znode). The controller *admits* it: only
then what is written of this broker (its leaderships, its place in an ISR) is of this life and not of a former one.
After a lost session the broker registers again by itself, as another life of the same process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from penstock.base.world import World
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.lease import Lease
from penstock.zookeeper.coordination import Coordination, SessionState
from penstock.zookeeper.errors import ConnectionLossError, CoordinationError, NodeExistsError
from penstock.zookeeper.znodes import BrokerNode

logger = logging.getLogger(__name__)

RETRY_S = 0.1
NOT_REGISTERED = -1


class IdTakenError(Exception):
    """Another living broker has this id."""


class Membership:
    """See the head of this file."""

    def __init__(
        self, broker_id: int, world: World, coordination: Coordination, view: ClusterView, lease: Lease
    ) -> None:
        self.broker_id = broker_id
        self.epoch = NOT_REGISTERED
        self.lease = lease
        self._world = world
        self._coordination = coordination
        self._view = view
        self._node: BrokerNode | None = None
        self._has_lost: Callable[[], bool] = lambda: False
        self._session_id = 0  # that of the registration
        self._admitted = asyncio.Event()
        self._registering: asyncio.Task[None] | None = None
        self.on_id_taken: Callable[[], None] = lambda: None
        view.on_change(self._view_changed)
        coordination.add_listener(self._session_changed)

    @property
    def is_admitted(self) -> bool:
        """Whether the controller has taken this registration into account."""
        return (
            self.epoch != NOT_REGISTERED
            and self._session_id == self._coordination.session_id
            and self._view.admitted.epochs.get(self.broker_id) == self.epoch
        )

    def lease_holds(self) -> bool:
        return self.lease.holds()

    async def register(self, node: BrokerNode, has_lost: Callable[[], bool]) -> None:
        """Become a member; IdTakenError if another broker has the id and keeps it."""
        self._node, self._has_lost = node, has_lost
        await self._register()

    async def admitted(self) -> None:
        """Returns when the controller has taken the registration into account, and the view has it."""
        await self._admitted.wait()

    async def stop(self) -> None:
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.wait([self._registering])

    # ── registering ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _register(self) -> None:
        assert self._node is not None
        path = BrokerNode.path(self.broker_id)
        give_up_at = self._world.clock.monotonic() + 1.5 * self._coordination.timeout_ms / 1000
        while True:
            session_id = self._coordination.session_id
            node = msgspec.structs.replace(
                self._node, clean_start=not self._has_lost(), timestamp_ms=self._world.clock.wall_ms()
            )
            try:
                try:
                    await self._coordination.create(path, node.encode(), ephemeral=True)
                except NodeExistsError:
                    pass  # perhaps our own, made by a request whose answer was lost
                stat = await self._coordination.exists(path)
            except ConnectionLossError:
                continue
            if stat is not None and stat.ephemeral_owner == session_id:
                break
            if self._world.clock.monotonic() > give_up_at:
                raise IdTakenError(f"a broker with the id {self.broker_id} is running already")
            await asyncio.sleep(RETRY_S)  # a former life of ours, whose session ends soon
        self.epoch, self._session_id = stat.czxid, session_id
        logger.info("broker %d is registered, in epoch %d", self.broker_id, self.epoch)
        await self._view.refresh()

    async def _view_changed(self, _change: ViewChange) -> None:
        if self.is_admitted:
            self._admitted.set()
        else:
            self._admitted.clear()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            logger.error("the session with the coordination service has expired: out until there is a new one")
            self._admitted.clear()
        elif state is SessionState.CONNECTED and self._session_id not in (0, self._coordination.session_id):
            self._start_registering()

    def _start_registering(self) -> None:
        if self._registering is None or self._registering.done():
            self._registering = asyncio.get_running_loop().create_task(self._register_again())

    async def _register_again(self) -> None:
        while self._session_id != self._coordination.session_id:
            try:
                await self._register()
            except IdTakenError as error:
                logger.error("%s", error)
                self.on_id_taken()
                return
            except CoordinationError as error:
                logger.warning("the broker cannot register again yet: %s", error)
                await asyncio.sleep(RETRY_S)
