"""Carrying out what the controller decides, while this broker is it: claim the role, write plans, give it up.

Whoever finds no `/controller` claims the role; one multi decides who gets it. From then on every write checks the epoch
that came with the claim, so a controller that was replaced without knowing it can write nothing. The first duty of a
new one, and of every one whenever brokers come and go, is to even out who is here and who was counted
(`controller/elections.members_changed`).

The decisions are pure (`penstock.controller`); here they meet the coordination service. A decision that was overtaken
(another write came first), or of which nobody knows whether it was written (the connection broke), is not assumed to
have happened: the view is read again and it is made anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.base.errors import ApiError, Error
from penstock.base.world import Clock
from penstock.broker.audit_log import Record, not_recorded
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.controller.claim import claim_controller
from penstock.controller.elections import members_changed
from penstock.controller.membership import PendingDeletion
from penstock.controller.plan import ClusterState, Plan, fenced_writes
from penstock.controller.producer_ids import next_block
from penstock.controller.transitions import RulesOf
from penstock.zookeeper.coordination import Coordination
from penstock.zookeeper.errors import (
    BadVersionError,
    ConnectionLossError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    StorageFullError,
)
from penstock.zookeeper.topic_znodes import Topic
from penstock.zookeeper.znodes import (
    TOPIC_DELETIONS_PATH,
    ControllerEpoch,
    ControllerNode,
    ProducerIds,
    TopicDeletion,
)

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Sequence[Plan | ApiError])

ATTEMPTS_MAX = 10
RETRY_S = 0.1

Decision = Callable[[ClusterState], T]


class ControllerRole:
    """See the head of this file."""

    def __init__(
        self, broker_id: int, coordination: Coordination, view: ClusterView, clock: Clock, rules_of: RulesOf
    ) -> None:
        self.rules_of = rules_of
        self.epoch = -1
        """Of the last claim that succeeded."""
        self.record: Record = not_recorded
        """Puts elections and changes of in-sync replicas on record."""
        self.unclean_elections = 0
        """Partitions that got a leader that may lack acknowledged records, by this broker, since its start."""
        self._broker_id = broker_id
        self._coordination = coordination
        self._view = view
        self._clock = clock
        self._epoch_version: int | None = None  # None: another is the controller, or nobody
        self._session_id = 0  # in which the role was claimed: it ends with it
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()
        self._acting: asyncio.Task[None] | None = None
        self._on_role: list[Callable[[], None]] = []

    @property
    def is_controller(self) -> bool:
        return self._epoch_version is not None and self._session_id == self._coordination.session_id

    def on_role(self, listener: Callable[[], None]) -> None:
        """Be told whenever this broker has become the controller, or is it no more."""
        self._on_role.append(listener)

    # ── having the role ──────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Claim the role whenever it is free, and look after the members while it is ours."""
        self._view.on_change(self._view_changed)
        self._news.set()
        self._acting = asyncio.get_running_loop().create_task(self._act_forever())

    async def stop(self) -> None:
        if self._acting is not None:
            self._acting.cancel()
            await asyncio.wait([self._acting])

    async def _view_changed(self, change: ViewChange) -> None:
        if change.members:
            self._news.set()

    async def _act_forever(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._act()
            except (CoordinationError, ApiError) as error:
                logger.warning("the controller's work is tried again: %s", error)
                await asyncio.sleep(RETRY_S)
                self._news.set()
            except Exception:
                logger.exception("the controller's work failed, and is tried again")
                await asyncio.sleep(RETRY_S)
                self._news.set()

    async def _act(self) -> None:
        if not self.is_controller:
            self._resign()
            if self._broker_id not in self._view.brokers:
                return  # not a member (any more)
            if self._view.controller_id == -1:
                await self._claim()
            elif self._view.controller_id == self._broker_id:
                await self._take_claimed()
        if self.is_controller:
            await self.decide(lambda state: members_changed(state, self.rules_of))

    async def _claim(self) -> None:
        session_id = self._coordination.session_id
        data, stat = await self._coordination.get(ControllerEpoch.PATH)
        claim = claim_controller(self._broker_id, ControllerEpoch.decode(data), stat.version, self._clock.wall_ms())
        try:
            await self._coordination.multi(claim.operations)
        except (NodeExistsError, BadVersionError):
            await self._view.refresh()
            return
        await self._begin(claim.epoch, claim.epoch_version, session_id)

    async def _take_claimed(self) -> None:
        """The role is ours, but the answer to the claim was lost; or it is of a session of ours that ends soon."""
        session_id = self._coordination.session_id
        data, stat = await self._coordination.get(ControllerNode.PATH)
        if stat.ephemeral_owner == session_id:
            epoch_data, epoch_stat = await self._coordination.get(ControllerEpoch.PATH)
            if ControllerNode.decode(data).epoch == ControllerEpoch.decode(epoch_data).epoch:
                await self._begin(ControllerNode.decode(data).epoch, epoch_stat.version, session_id)

    async def _begin(self, epoch: int, epoch_version: int, session_id: int) -> None:
        self._epoch_version, self.epoch, self._session_id = epoch_version, epoch, session_id
        logger.info("this broker is the controller now, in epoch %d", epoch)
        await self._view.refresh()
        self._tell_role()

    def _resign(self) -> None:
        if self._epoch_version is not None:
            self._epoch_version = None
            logger.warning("this broker is not the controller any more")
            self._tell_role()

    def _tell_role(self) -> None:
        for listener in self._on_role:
            listener()

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def decide(self, decision: Decision[T]) -> T:
        """Make a decision, carry out its plans, and return it once this broker's view contains them."""
        async with self._lock:
            for _ in range(ATTEMPTS_MAX):
                decided = decision(self._view.state(self._required_epoch_version()))
                try:
                    await self._write([plan for plan in decided if isinstance(plan, Plan)])
                except (BadVersionError, NodeExistsError, NoNodeError, ConnectionLossError):
                    await self._look_again()
                    continue
                except StorageFullError as error:
                    raise ApiError(Error.KAFKA_STORAGE_ERROR, str(error)) from error
                except CoordinationError as error:
                    raise ApiError(Error.NOT_CONTROLLER, str(error)) from error
                return decided
        raise ApiError(Error.REQUEST_TIMED_OUT, "the cluster changed too often in between; try again")

    async def preview(self, decision: Decision[T]) -> T:
        """The decision as it would be made now, without carrying it out."""
        return decision(self._view.state(self._required_epoch_version()))

    async def pending_deletions(self) -> list[PendingDeletion]:
        """The deleted topics whose replicas are not all removed yet."""
        pending = []
        try:
            names, _ = await self._coordination.children(TOPIC_DELETIONS_PATH)
            for name in names:
                try:
                    data, stat = await self._coordination.get(f"{TOPIC_DELETIONS_PATH}/{name}")
                except NoNodeError:
                    continue
                pending.append(PendingDeletion(TopicDeletion.decode(data), stat.version))
        except CoordinationError as error:
            raise ApiError(Error.NOT_CONTROLLER, str(error)) from error
        return pending

    def _required_epoch_version(self) -> int:
        if self._epoch_version is None or not self.is_controller:
            raise ApiError(Error.NOT_CONTROLLER)
        return self._epoch_version

    async def _look_again(self) -> None:
        """After a write that came to nothing, or that nobody answered."""
        try:
            _, stat = await self._coordination.get(ControllerEpoch.PATH)
            if stat.version != self._epoch_version:
                self._resign()
                self._news.set()
            await self._view.load()
        except CoordinationError as error:
            raise ApiError(Error.NOT_CONTROLLER, str(error)) from error

    async def _write(self, plans: Sequence[Plan]) -> None:
        state = self._view.state(self._required_epoch_version())
        for write in fenced_writes(state, plans):
            before = {plan.topic.name: state.topics.get(plan.topic.name) for plan in write.plans if plan.topic}
            await self._coordination.multi(write.operations)
            for plan in write.plans:
                if plan.topic is not None and (old := before[plan.topic.name]) is not None:
                    self._put_on_record(old, plan.topic, plan.unclean)
                if plan.unclean and plan.topic is not None:
                    logger.error("unclean leaders of %s: partitions %s", plan.topic.name, list(plan.unclean))
                    self.unclean_elections += len(plan.unclean)
        if plans:
            await self._view.refresh()

    def _put_on_record(self, old: Topic, new: Topic, unclean: Sequence[int]) -> None:
        if new.topic_id != old.topic_id:
            return
        for index, (was, becomes) in enumerate(zip(old.partitions, new.partitions, strict=False)):
            name = f"{new.name}-{index}"
            if becomes.leader != was.leader:
                self.record(
                    "leader_elected",
                    partition=name,
                    leader=becomes.leader,
                    before=was.leader,
                    epoch=becomes.leader_epoch,
                    clean=index not in unclean,
                )
            if set(becomes.isr) != set(was.isr):
                self.record("isr_changed", partition=name, isr=list(becomes.isr), before=list(was.isr))


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
            try:
                data, stat = await self._coordination.get(ProducerIds.PATH)
                block = next_block(ProducerIds.decode(data), stat.version, self._broker_id)
                await self._coordination.multi([block.operation])
            except BadVersionError:
                continue
            except (StorageFullError, CoordinationError):
                break  # producers retry this error, and not a storage error
            return block.ids
        raise ApiError(Error.COORDINATOR_LOAD_IN_PROGRESS, "producer ids could not be reserved; try again")
