"""Replicas of this broker that are in a failed log directory: the controller is told, so that others lead them.

What there is to tell is read off the state of the cluster, not remembered: a replica that is not served here any more
and that still leads, or is in an ISR with others. So it does not matter how often it is told, to whom, or what became
of the answer. A replica that is alone in its ISR stays there, without a leader, until the directory is back.

If nobody can be told for long (`log.dir.failure.timeout.ms`), the broker ends: without it others are elected. It ends
too when none of its directories is left, for then it would be given new replicas and could not hold them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.settings import Settings
from penstock.base.world import Clock
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.controller_role import ControllerRole
from penstock.broker.membership import Membership
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.peers import PeerError, Peers
from penstock.controller.elections import replicas_failed
from penstock.controller.plan import ClusterState, Plan
from penstock.wire.messages.k20006_replicas_failed import API as REPLICAS_FAILED
from penstock.wire.messages.k20006_replicas_failed import (
    ReplicasFailedRequest,
    ReplicasFailedRequestTopic,
    ReplicasFailedResponse,
)
from penstock.zookeeper.errors import CoordinationError
from penstock.zookeeper.topic_znodes import PartitionState

logger = logging.getLogger(__name__)

NO_CONTROLLER = -1
RETRY_S = 0.5
ANSWER_S_MAX = 10.0


class FailedReplicas:
    """See the head of this file."""

    def __init__(
        self,
        clock: Clock,
        view: ClusterView,
        partitions: Partitions,
        membership: Membership,
        peers: Peers,
        role: ControllerRole,
        settings: Settings,
    ) -> None:
        self.on_give_up: Callable[[], None] = lambda: None
        self._monotonic = clock.monotonic
        self._timeout_s = settings.integer("log.dir.failure.timeout.ms") / 1000
        self._failing_since_s: float | None = None
        self._view = view
        self._partitions = partitions
        self._membership = membership
        self._peers = peers
        self._role = role
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        partitions.on_roles(self._roles_changed)
        view.on_change(self._view_changed)

    def start(self) -> None:
        self._news.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _roles_changed(self, changed: list[Partition]) -> None:
        if any(partition.is_gone for partition in changed):
            self._news.set()

    async def _view_changed(self, _change: ViewChange) -> None:
        if any(directory.offline is not None for directory in self._partitions.directories):
            self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                if all(directory.offline is not None for directory in self._partitions.directories):
                    await self._give_up()
                await self._tell()
                self._failing_since_s = None
            except (PeerError, TimeoutError, CoordinationError) as error:
                logger.warning("the controller is told again of failed replicas: %s", error)
                await self._again_soon()
            except Exception:
                logger.exception("the controller could not be told of failed replicas, and is told again")
                await self._again_soon()

    async def _give_up(self) -> None:
        logger.error("every log directory has failed: the broker ends")
        while True:
            self.on_give_up()  # again, for whoever is starting the broker does not listen yet
            await asyncio.sleep(RETRY_S)

    async def _again_soon(self) -> None:
        now_s = self._monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        elif now_s - self._failing_since_s > self._timeout_s:
            logger.error("the controller could not be told of failed replicas for too long: the broker ends")
            self.on_give_up()
        await asyncio.sleep(RETRY_S)
        self._news.set()

    async def _tell(self) -> None:
        failed = [partition for partition in self._partitions if self._is_news(partition)]
        if not failed or not self._membership.is_admitted:
            return
        answer = await self._answer(self._request(failed))
        if answer.error_code:
            raise PeerError(Error(answer.error_code).text)
        logger.warning("%d replicas in failed log directories were given up", len(failed))
        await self._view.refresh()

    def _is_news(self, partition: Partition) -> bool:
        if not partition.is_gone:
            return False
        state = self._state_of(partition)
        broker_id = self._membership.broker_id
        return state is not None and (state.leader == broker_id or (broker_id in state.isr and len(state.isr) > 1))

    def _state_of(self, partition: Partition) -> PartitionState | None:
        topic = self._view.topic_by_id(partition.topic_id)
        index = partition.name.partition
        return topic.partitions[index] if topic is not None and index < len(topic.partitions) else None

    def _request(self, failed: Sequence[Partition]) -> ReplicasFailedRequest:
        topics: dict[UUID, ReplicasFailedRequestTopic] = {}
        for partition in failed:
            topic_id = partition.topic_id
            topic = topics.setdefault(topic_id, ReplicasFailedRequestTopic(topic_id=topic_id))
            topic.partitions.append(partition.name.partition)
        return ReplicasFailedRequest(
            broker_id=self._membership.broker_id, broker_epoch=self._membership.epoch, topics=list(topics.values())
        )

    async def _answer(self, request: ReplicasFailedRequest) -> ReplicasFailedResponse:
        if self._role.is_controller:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await answer_to(self._role, request)
        controller_id = self._view.controller_id
        if controller_id == NO_CONTROLLER:
            raise PeerError("there is no controller now")
        answer: ReplicasFailedResponse = await self._peers.ask(
            controller_id, REPLICAS_FAILED, request, timeout_s=ANSWER_S_MAX
        )
        return answer


async def answer_to(role: ControllerRole, request: ReplicasFailedRequest) -> ReplicasFailedResponse:
    """Give the replicas up, if this broker is the controller and the one that asks is the one it was told of."""

    def decide(state: ClusterState) -> list[Plan]:
        epoch = state.broker_epochs.get(request.broker_id)
        if not state.is_admitted(request.broker_id) or epoch != request.broker_epoch:
            raise ApiError(Error.STALE_BROKER_EPOCH)
        names = {topic.topic_id: name for name, topic in state.topics.items()}
        failed = {names[topic.topic_id]: topic.partitions for topic in request.topics if topic.topic_id in names}
        return replicas_failed(state, role.rules_of, request.broker_id, failed)

    try:
        await role.decide(decide)
    except ApiError as error:
        return ReplicasFailedResponse(error_code=error.error)
    return ReplicasFailedResponse()
