"""Asking the controller for the ISR changes of the partitions that this broker leads.

Whoever lags for too long is found by a sweep, whoever has caught up when it fetches. All changes that are due go into
one request (AlterPartition), one request at a time. What was asked for counts in the *maximal* ISR of its leader until
it is known what became of it, and that is known only by the partition epoch:

- **Granted**, or refused because the state has changed meanwhile: the view is read again, and the leader takes the new
  state from there, like every other state. It is never taken from the answer: the view knows by then also the settings
  that were written before it.
- **Refused**, and no attempt before this one was left without an answer: the controller has not made the change and
  will not. The leader goes on with the ISR that it has.
- **No answer**: the change may have been made, or may be made at any time later. It is asked for again, just the same.
- **Refused after no answer**: the attempt that was not answered may still be on its way, and may be granted when it
  arrives. So the controller is asked for the ISR as it is, which makes the partition epoch grow: whatever comes with
  the old one is refused then.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from penstock.base.errors import Error
from penstock.base.settings import Settings
from penstock.base.world import World
from penstock.broker.alter_partition import answer_to, request_of
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.controller_role import ControllerRole
from penstock.broker.membership import Membership
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.peers import PeerError, Peers
from penstock.replication.leader import IsrChange, Leader
from penstock.wire.messages.k56_alter_partition import API as ALTER_PARTITION
from penstock.wire.messages.k56_alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.zookeeper.errors import CoordinationError

logger = logging.getLogger(__name__)

CHANGES_PER_REQUEST_MAX = 2000
NO_CONTROLLER = -1
RETRY_S = 0.2  # after a failure, and before somebody who was refused is proposed again

#: What says that the controller has made another state of the partition than the leader knows, or is about to.
_THERE_IS_NEWS = frozenset(
    {
        Error.NONE,
        Error.NEW_LEADER_ELECTED,
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_UPDATE_VERSION,
        Error.UNKNOWN_TOPIC_ID,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(slots=True)
class _Question:
    """What is asked for one partition, until the leader knows what became of it."""

    leader: Leader
    change: IsrChange
    is_sure: bool = True  # every attempt so far was answered


class IsrChanges:
    """See the head of this file."""

    def __init__(
        self,
        world: World,
        view: ClusterView,
        partitions: Partitions,
        membership: Membership,
        peers: Peers,
        role: ControllerRole,
        settings: Settings,
    ) -> None:
        self._clock = world.clock
        self._view = view
        self._partitions = partitions
        self._membership = membership
        self._peers = peers
        self._role = role
        self._lag_ms_max = settings.integer("replica.lag.time.max.ms")
        self._answer_s_max = settings.integer("controller.socket.timeout.ms") / 1000
        self._to_look_at: dict[Partition, None] = {}
        self._not_before_s: dict[Partition, float] = {}  # of those that were refused
        self._questions: dict[Partition, _Question] = {}
        self._news = asyncio.Event()
        self._sweep_at_s = 0.0
        self._retry_at_s = 0.0
        self._has_failed = False  # the last time
        self._task: asyncio.Task[None] | None = None
        view.on_change(self._view_changed)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def follower_fetched(self, partition: Partition) -> None:
        """To be called after a follower's fetch was counted: perhaps it may join the ISR now."""
        leader = partition.leader
        if leader is not None and leader.has_joiner and partition not in self._not_before_s:
            self._to_look_at[partition] = None
            self._news.set()

    async def _view_changed(self, change: ViewChange) -> None:
        if change.members and self._questions:  # perhaps there is a controller again
            self._retry_at_s = 0.0
            self._news.set()

    # ── when ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        self._sweep_at_s = self._clock.monotonic() + self._lag_ms_max / 2000
        while True:
            await self._wait()
            self._news.clear()
            try:
                self._look()
                await self._ask()
            except Exception:
                logger.exception("asking for changes of in-sync replicas failed, and is tried again")
                self._retry_at_s = self._clock.monotonic() + RETRY_S

    async def _wait(self) -> None:
        """Until there is news, or the next time at which something is due."""
        due_s = [self._sweep_at_s, *self._not_before_s.values()]
        if self._questions:
            due_s.append(self._retry_at_s)
        delay_s = max(0.0, min(due_s) - self._clock.monotonic())
        alarm = asyncio.get_running_loop().call_later(delay_s, self._news.set)
        await self._news.wait()
        alarm.cancel()

    # ── what ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        """Find the changes that are due now."""
        now_s = self._clock.monotonic()
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + self._lag_ms_max / 2000
            self._to_look_at.update(dict.fromkeys(self._partitions))
        for partition in [each for each, not_before_s in self._not_before_s.items() if now_s >= not_before_s]:
            del self._not_before_s[partition]
            self._to_look_at[partition] = None
        looked_at, self._to_look_at = self._to_look_at, {}
        for partition in looked_at:
            if partition not in self._not_before_s:
                self._look_at(partition, int(now_s * 1000))

    def _look_at(self, partition: Partition, now_ms: int) -> None:
        leader = partition.leader
        if leader is None or partition.is_gone:
            return
        change = leader.isr_change(
            now_ms, self._lag_ms_max, self._membership.epoch, lambda broker_id: self._may_join(leader, broker_id)
        )
        if change is not None:
            partition.takes_at_once = False  # whoever may be in sync by now counts, before it is known
            self._questions[partition] = _Question(leader, change)
            self._retry_at_s = 0.0

    def _may_join(self, leader: Leader, broker_id: int) -> bool:
        """Whether the controller would take a follower, in the life in which it has fetched."""
        epoch = leader.followers[broker_id].broker_epoch
        admitted = self._view.admitted
        is_present = epoch == admitted.epochs.get(broker_id) == self._view.broker_epochs.get(broker_id)
        return is_present and broker_id not in admitted.leaving

    def _forget_what_is_known(self) -> None:
        """The leader has a newer state, or is no leader any more."""
        for partition, question in list(self._questions.items()):
            if partition.leader is not question.leader or question.leader.isr_change_again() is None:
                del self._questions[partition]

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self) -> None:
        self._forget_what_is_known()
        if not self._questions or self._clock.monotonic() < self._retry_at_s:
            return
        if not self._role.is_controller and self._view.controller_id == NO_CONTROLLER:
            self._again_soon("there is no controller now")
            return
        asked = dict(islice(self._questions.items(), CHANGES_PER_REQUEST_MAX))
        request = request_of(
            self._membership.broker_id,
            self._membership.epoch,
            [(each.topic_id, each.name.partition, question.change) for each, question in asked.items()],
        )
        try:
            answer = await self._answer(request)
        except (PeerError, TimeoutError) as error:
            self._left_open(asked, str(error))
            return
        if answer.error_code == Error.STALE_BROKER_EPOCH:  # said before anything is written
            self._again_soon(Error.STALE_BROKER_EPOCH.text)
        elif answer.error_code:
            self._left_open(asked, Error(answer.error_code).text)
        else:
            self._has_failed = False
            await self._take(asked, answer)

    async def _answer(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self._role.is_controller:
            async with asyncio.timeout(self._answer_s_max):
                return await answer_to(self._role, request)
        answer: AlterPartitionResponse = await self._peers.ask(
            self._view.controller_id, ALTER_PARTITION, request, timeout_s=self._answer_s_max
        )
        return answer

    def _left_open(self, asked: dict[Partition, _Question], reason: str) -> None:
        """Nobody knows what became of it."""
        for question in asked.values():
            question.is_sure = False
        self._again_soon(reason)

    def _again_soon(self, reason: str) -> None:
        if not self._has_failed:
            logger.warning("changes of in-sync replicas are asked for until they are answered: %s", reason)
        self._has_failed = True
        self._retry_at_s = self._clock.monotonic() + RETRY_S

    async def _take(self, asked: dict[Partition, _Question], answer: AlterPartitionResponse) -> None:
        errors: dict[tuple[UUID, int], int] = {
            (topic.topic_id, result.partition_index): result.error_code
            for topic in answer.topics
            for result in topic.partitions
        }
        has_news = False
        for partition, question in asked.items():
            error = errors.get((partition.topic_id, partition.name.partition), Error.NOT_CONTROLLER)
            if error in _THERE_IS_NEWS:
                has_news = True
            elif error == Error.NOT_CONTROLLER:
                question.is_sure = False
            else:
                self._refused(partition, question, Error(error))
        self._retry_at_s = self._clock.monotonic() + RETRY_S
        if has_news:
            await self._see_news()
        self._forget_what_is_known()
        if any(partition not in asked for partition in self._questions):
            self._retry_at_s = 0.0

    async def _see_news(self) -> None:
        try:
            await self._view.refresh()
        except CoordinationError as error:
            logger.info("the new in-sync replicas are read when the coordination service answers: %s", error)

    def _refused(self, partition: Partition, question: _Question, error: Error) -> None:
        logger.info("%s: in-sync replicas %s refused: %s", partition.name, list(question.change.isr), error.text)
        if question.is_sure:
            del self._questions[partition]
            partition.isr_change_ended(question.leader, is_refused=True)
            self._not_before_s[partition] = self._clock.monotonic() + RETRY_S
        else:
            question.change = question.leader.present_isr(self._membership.epoch)
