"""Asking the controller for ISR changes: what is asked when, and that nothing is lost by lost and late answers.

The controller is the real one (its pure decisions), the way to it is a model that loses, repeats and delays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.base.broker_settings import load_broker_settings
from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.world import World
from penstock.broker.alter_partition import answer_to
from penstock.broker.cluster_view import ViewChange
from penstock.broker.isr_changes import RETRY_S, IsrChanges
from penstock.broker.peers import PeerError
from penstock.controller.elections import members_changed
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.transitions import TopicRules
from penstock.replication.leader import Leader, Membership
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k56_alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.zookeeper.errors import ConnectionLossError
from penstock.zookeeper.topic_znodes import PartitionState, Topic
from penstock.zookeeper.znodes import AdmittedBrokers, BrokerNode, Changes

TOPIC_ID = UUID(int=7)
LEADER = 1
LAG_S = 10
RULES = TopicRules(min_isr=1)


class Controller:
    """The controller's half: the state, and decisions carried out at once."""

    def __init__(self, isr: tuple[int, ...], partition_count: int = 1) -> None:
        self.epochs = {1: 101, 2: 102, 3: 103}
        self.admitted = AdmittedBrokers(epochs=dict(self.epochs))
        partitions = (PartitionState((1, 2, 3), isr, LEADER, leader_epoch=5, partition_epoch=9),) * partition_count
        self.topic = Topic("t", TOPIC_ID, partitions, (3,))
        self.is_controller = True
        self.rules_of = lambda _name: RULES

    @property
    def state(self) -> ClusterState:
        brokers = {broker_id: BrokerNode(endpoints=()) for broker_id in self.epochs}
        topics = {"t": self.topic}
        return ClusterState(0, Changes(), 0, brokers, topics, dict(self.epochs), self.admitted, 0)

    async def decide(self, decision: Callable[[ClusterState], Sequence[Plan | ApiError]]) -> Any:
        if not self.is_controller:
            raise ApiError(Error.NOT_CONTROLLER)
        decided = decision(self.state)
        self._write([plan for plan in decided if isinstance(plan, Plan)])
        return decided

    def _write(self, plans: Sequence[Plan]) -> None:
        for plan in plans:
            if plan.topic is not None:
                self.topic = plan.topic

    def members_changed(self) -> None:
        """Somebody came or went: even it out, as the controller does."""
        self._write(members_changed(self.state, self.rules_of))
        self.admitted = replace_admitted(self.admitted, self.epochs)


def replace_admitted(before: AdmittedBrokers, epochs: dict[int, int]) -> AdmittedBrokers:
    leaving = tuple(each for each in before.leaving if before.epochs.get(each) == epochs.get(each))
    return AdmittedBrokers(epochs=dict(epochs), leaving=leaving)


class LedPartition:
    """As much of a partition as matters here."""

    def __init__(self, index: int, state: PartitionState, now_ms: int) -> None:
        self.name = TopicPartition("t", index)
        self.topic_id = TOPIC_ID
        self.is_gone = False
        self.takes_at_once = len(state.isr) == 1
        self.end_offset = 10
        self.leader: Leader | None = Leader(
            LEADER,
            state.leader_epoch,
            Membership(state.replicas, frozenset(state.isr), state.partition_epoch),
            end_offset=self.end_offset,
            counted_end_offset=self.end_offset,
            high_watermark=self.end_offset,
            min_isr=1,
            now_ms=now_ms,
        )

    def isr_change_ended(self, leader: Leader, *, is_refused: bool) -> None:
        assert is_refused and leader is self.leader
        leader.isr_change_refused()


class View:
    """What the leader's broker knows: a copy of the state, as old as its last refresh."""

    def __init__(self, controller: Controller, partitions: list[LedPartition], world: World) -> None:
        self._controller = controller
        self._partitions = partitions
        self._clock = world.clock
        self._listeners: list[Callable[[ViewChange], Awaitable[None]]] = []
        self.controller_id = 3
        self.fails = False
        self.refreshes = 0
        self._read()

    def on_change(self, listener: Callable[[ViewChange], Awaitable[None]]) -> None:
        self._listeners.append(listener)

    def _read(self) -> None:
        self.broker_epochs, self.admitted = dict(self._controller.epochs), self._controller.admitted

    async def refresh(self) -> None:
        self.refreshes += 1
        await asyncio.sleep(0.01)
        if self.fails:
            raise ConnectionLossError
        self._read()
        now_ms = int(self._clock.monotonic() * 1000)
        for partition, state in zip(self._partitions, self._controller.topic.partitions, strict=True):
            leader = partition.leader
            if leader is not None and state.leader_epoch == leader.epoch:
                leader.membership_changed(
                    Membership(state.replicas, frozenset(state.isr), state.partition_epoch), now_ms
                )
            elif leader is not None:
                partition.leader = None
        for listener in self._listeners:
            await listener(ViewChange(members=True))


class Peers:
    """The way to the controller. `fate` says what becomes of a request; see `ask`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.requests: list[AlterPartitionRequest] = []
        self.fate: Callable[[], str] = lambda: "answered"
        self.late: list[AlterPartitionRequest] = []
        self.refuse_all: Error | None = None

    async def ask(
        self, node_id: int, _api: Any, request: AlterPartitionRequest, *, timeout_s: float
    ) -> AlterPartitionResponse:
        assert node_id == 3 and timeout_s > 0
        self.requests.append(request)
        await asyncio.sleep(0.005)
        fate = self.fate()
        if self.refuse_all is not None:
            return AlterPartitionResponse(error_code=self.refuse_all)
        if fate == "late":  # it arrives when nobody expects it any more
            self.late.append(request)
            raise PeerError("no answer")
        if fate == "lost":
            raise PeerError("no connection")
        answer = await self.arrive(request)
        if fate == "unanswered":
            raise PeerError("the connection broke")
        return answer

    async def arrive(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await answer_to(cast(Any, self._controller), request)


class Bench:
    """All of it together, on a simulated clock."""

    def __init__(self, world: World, isr: tuple[int, ...], partition_count: int = 1) -> None:
        self.world = world
        self.controller = Controller(isr, partition_count)
        now_ms = int(world.clock.monotonic() * 1000)
        self.partitions = [
            LedPartition(index, state, now_ms) for index, state in enumerate(self.controller.topic.partitions)
        ]
        self.view = View(self.controller, self.partitions, world)
        self.peers = Peers(self.controller)
        self.role = SimpleNamespace(is_controller=False)
        settings = load_broker_settings({"node.id": "1", "replica.lag.time.max.ms": str(LAG_S * 1000)})
        membership = SimpleNamespace(broker_id=LEADER, epoch=101)
        self.changes = IsrChanges(
            world,
            cast(Any, self.view),
            cast(Any, self.partitions),
            cast(Any, membership),
            cast(Any, self.peers),
            cast(Any, self.role),
            settings,
        )
        self.changes.start()

    def fetch(self, follower_id: int, offset: int, *, epoch: int | None = None, index: int = 0) -> None:
        partition = self.partitions[index]
        if partition.leader is not None:
            now_ms = int(self.world.clock.monotonic() * 1000)
            epoch = self.controller.epochs[follower_id] if epoch is None else epoch
            partition.leader.follower_fetched(follower_id, epoch, offset, partition.end_offset, now_ms)
            self.changes.follower_fetched(cast(Any, partition))

    def write(self, index: int = 0) -> None:
        partition = self.partitions[index]
        partition.end_offset += 1
        if partition.leader is not None:
            partition.leader.local_log_moved(partition.end_offset)

    @property
    def asked(self) -> list[list[int]]:
        """The ISRs that were asked for, of all partitions in turn."""
        return [
            [member.broker_id for member in partition.new_isr_with_epochs]
            for request in self.peers.requests
            for topic in request.topics
            for partition in topic.partitions
        ]

    def isr(self, index: int = 0) -> tuple[int, ...]:
        return self.controller.topic.partitions[index].isr

    @property
    def leader(self) -> Leader:
        leader = self.partitions[0].leader
        assert leader is not None
        return leader


Script = Callable[[Bench], Awaitable[None]]


@pytest.fixture
def run() -> Iterator[Callable[..., None]]:
    def run_script(script: Script, isr: tuple[int, ...] = (1, 2), partition_count: int = 1) -> None:
        with Simulation(1) as simulation:
            world = simulation.machine("leader").process("broker").world

            async def main() -> None:
                bench = Bench(world, isr, partition_count)
                await script(bench)
                await bench.changes.stop()

            simulation.run(main())

    yield run_script


def test_who_has_caught_up_joins_at_once(run: Callable[..., None]) -> None:
    async def script(bench: Bench) -> None:
        bench.fetch(3, 9)
        await asyncio.sleep(0.1)
        assert bench.asked == []
        bench.fetch(3, 10)
        assert bench.leader.has_joiner
        await asyncio.sleep(0.1)
        assert bench.asked == [[1, 2, 3]]
        assert bench.leader.membership == ((1, 2, 3), {1, 2, 3}, 10)
        bench.fetch(3, 10)
        await asyncio.sleep(1)
        assert len(bench.peers.requests) == 1

    run(script)


def test_who_lags_leaves_by_the_sweep(run: Callable[..., None]) -> None:
    async def script(bench: Bench) -> None:
        bench.write()
        for _ in range(4 * LAG_S):
            bench.fetch(2, bench.partitions[0].end_offset)
            await asyncio.sleep(0.5)
        assert bench.asked == [[1, 2]]
        assert bench.isr() == (1, 2) and bench.leader.maximal_isr == {1, 2}

    run(script, isr=(1, 2, 3))


def test_all_that_is_due_goes_into_one_request(run: Callable[..., None]) -> None:
    async def script(bench: Bench) -> None:
        for index in range(5):
            bench.fetch(3, 10, index=index)
        await asyncio.sleep(0.1)
        assert len(bench.peers.requests) == 1 and len(bench.asked) == 5
        assert {bench.isr(index) for index in range(5)} == {(1, 2, 3)}

    run(script, partition_count=5)


def test_the_controller_asks_itself(run: Callable[..., None]) -> None:
    async def script(bench: Bench) -> None:
        for name in ("decide", "rules_of"):
            setattr(bench.role, name, getattr(bench.controller, name))
        bench.role.is_controller = True
        bench.fetch(3, 10)
        await asyncio.sleep(0.1)
        assert bench.peers.requests == [] and bench.isr() == (1, 2, 3)

    run(script)


@pytest.mark.parametrize("what", ["leaving", "not admitted", "an older life"])
def test_who_the_controller_would_not_take_is_not_proposed(run: Callable[..., None], what: str) -> None:
    async def script(bench: Bench) -> None:
        if what == "leaving":
            bench.view.admitted = AdmittedBrokers(epochs=bench.controller.epochs, leaving=(3,))
        elif what == "not admitted":
            bench.view.admitted = AdmittedBrokers(epochs={1: 101, 2: 102})
        bench.fetch(3, 10, epoch=102 if what == "an older life" else 103)
        await asyncio.sleep(1)
        assert bench.asked == [] and bench.leader.maximal_isr == {1, 2}

    run(script)


def test_a_refusal_ends_it_and_the_next_try_waits_a_moment(run: Callable[..., None]) -> None:
    async def script(bench: Bench) -> None:
        bench.controller.admitted = AdmittedBrokers(epochs=bench.controller.epochs, leaving=(3,))
        bench.fetch(3, 10)
        await asyncio.sleep(RETRY_S / 2)
        assert bench.asked == [[1, 2, 3]] and bench.leader.maximal_isr == {1, 2}
        bench.fetch(3, 10)
        await asyncio.sleep(RETRY_S / 4)
        assert len(bench.asked) == 1
        bench.controller.admitted = AdmittedBrokers(epochs=bench.controller.epochs)
        await asyncio.sleep(RETRY_S)
        assert bench.asked == [[1, 2, 3]] * 2 and bench.isr() == (1, 2, 3)

    run(script)


def test_without_an_answer_it_counts_on_and_is_asked_again(run: Callable[..., None]) -> None:
    async def script(bench: Bench) -> None:
        bench.peers.fate = lambda: "unanswered"
        bench.fetch(3, 10)
        await asyncio.sleep(0.1)
        assert bench.isr() == (1, 2, 3) and bench.leader.membership.isr == {1, 2}
        bench.write()
        bench.fetch(2, 11)
        assert bench.leader.high_watermark == 10, "3 may be in sync, and does not have it"
        bench.peers.fate = lambda: "answered"
        await asyncio.sleep(2 * RETRY_S)
        assert bench.asked == [[1, 2, 3]] * 2
        assert bench.leader.membership == ((1, 2, 3), {1, 2, 3}, 10)

    run(script)


def test_a_refusal_after_a_late_request_is_made_sure(run: Callable[..., None]) -> None:
    """Refused, but an earlier attempt may still arrive, and would be granted then."""

    async def script(bench: Bench) -> None:
        controller = bench.controller
        fates = iter(["late"])
        bench.peers.fate = lambda: next(fates, "answered")
        bench.fetch(3, 10)
        await asyncio.sleep(0.05)
        controller.admitted = AdmittedBrokers(epochs=controller.epochs, leaving=(3,))
        await asyncio.sleep(3 * RETRY_S)
        assert bench.asked[:3] == [[1, 2, 3], [1, 2, 3], [1, 2]]
        assert bench.leader.membership == ((1, 2, 3), {1, 2}, 10)
        controller.admitted = AdmittedBrokers(epochs=controller.epochs)
        (request,) = bench.peers.late
        late = await bench.peers.arrive(request)
        assert late.topics[0].partitions[0].error_code == Error.INVALID_UPDATE_VERSION
        assert bench.isr() == (1, 2)

    run(script)


def test_it_waits_for_a_controller(run: Callable[..., None]) -> None:
    async def script(bench: Bench) -> None:
        bench.view.controller_id = -1
        bench.fetch(3, 10)
        await asyncio.sleep(5)
        assert bench.asked == []
        bench.view.controller_id = 3
        bench.controller.is_controller = False
        await asyncio.sleep(5)
        assert len(bench.asked) > 5 and bench.isr() == (1, 2)
        bench.controller.is_controller = True
        bench.peers.refuse_all = Error.STALE_BROKER_EPOCH
        await asyncio.sleep(1)
        bench.peers.refuse_all = None
        await asyncio.sleep(1)
        assert bench.isr() == (1, 2, 3) and bench.leader.maximal_isr == {1, 2, 3}

    run(script)


def test_news_that_cannot_be_read_is_read_later(run: Callable[..., None]) -> None:
    async def script(bench: Bench) -> None:
        bench.view.fails = True
        bench.fetch(3, 10)
        await asyncio.sleep(2)
        assert bench.isr() == (1, 2, 3) and bench.leader.membership.isr == {1, 2}
        bench.view.fails = False
        await asyncio.sleep(1)
        assert bench.leader.membership.isr == {1, 2, 3}

    run(script)


def test_who_leads_no_more_asks_no_more(run: Callable[..., None]) -> None:
    async def script(bench: Bench) -> None:
        bench.peers.fate = lambda: "lost"
        bench.fetch(3, 10)
        await asyncio.sleep(0.1)
        bench.partitions[0].leader = None
        count = len(bench.asked)
        await asyncio.sleep(5)
        assert len(bench.asked) == count

    run(script)


def test_a_refusal_after_a_write_that_nobody_answered_is_not_one_for_good(run: Callable[..., None]) -> None:
    """The controller has decided twice: what it wrote first may still arrive."""

    async def script(bench: Bench) -> None:
        controller = bench.controller
        decide = controller.decide

        async def decide_twice(decision: Callable[[ClusterState], Sequence[Plan | ApiError]]) -> Any:
            if not any(isinstance(each, Plan) for each in decision(controller.state)):
                return await decide(decision)
            controller.admitted = AdmittedBrokers(epochs=controller.epochs, leaving=(3,))
            return await decide(decision)

        controller.decide = decide_twice  # type: ignore[method-assign]
        bench.fetch(3, 10)
        await asyncio.sleep(RETRY_S / 2)
        assert bench.asked == [[1, 2, 3]] and bench.leader.maximal_isr == {1, 2, 3}
        controller.decide = decide  # type: ignore[method-assign]
        await asyncio.sleep(3 * RETRY_S)
        assert bench.asked[:3] == [[1, 2, 3], [1, 2, 3], [1, 2]]
        assert bench.leader.membership == ((1, 2, 3), {1, 2}, 10)

    run(script)


# ── any order of anything ────────────────────────────────────────────────────────────────────────────────────────


class Disorder:
    """Followers that fetch, stop, and come back with less; a way that loses and delays; and what must hold."""

    def __init__(self, bench: Bench, random: Random) -> None:
        self.bench = bench
        self.random = random
        self.has = {2: 10, 3: 10}
        bench.peers.fate = lambda: random.choice(["answered", "answered", "lost", "unanswered", "late"])

    async def step(self) -> None:
        bench, random = self.bench, self.random
        follower_id = random.choice([2, 3])
        match random.choice(["write", "fetch", "fetch", "fetch", "restart", "arrive", "see", "wait", "flaky"]):
            case "write":
                bench.write()
            case "fetch":
                self._fetch(follower_id)
            case "restart":
                self._restart(follower_id)
            case "arrive" if bench.peers.late:
                await bench.peers.arrive(bench.peers.late.pop(random.randrange(len(bench.peers.late))))
            case "see" if not bench.view.fails:
                await bench.view.refresh()
            case "wait":
                await asyncio.sleep(random.choice([0.01, 0.1, 1, LAG_S]))
            case "flaky":
                bench.view.fails = random.random() < 0.3
        self.check()

    def _fetch(self, follower_id: int) -> None:
        partition = self.bench.partitions[0]
        if self.bench.controller.admitted.epochs.get(follower_id) == self.bench.controller.epochs[follower_id]:
            self.has[follower_id] = min(partition.end_offset, self.has[follower_id] + self.random.randrange(3))
        self.bench.fetch(follower_id, self.has[follower_id])

    def _restart(self, follower_id: int) -> None:
        """It comes back with less; the controller notices at once or later, but always before it admits it."""
        controller = self.bench.controller
        controller.epochs[follower_id] += 10
        self.has[follower_id] -= self.random.randrange(3)
        if self.random.random() < 0.7:
            controller.members_changed()

    def check(self) -> None:
        leader = self.bench.partitions[0].leader
        assert leader is not None
        controller = self.bench.controller
        controller_isr = set(self.bench.isr())
        assert controller_isr <= leader.maximal_isr
        for member in controller_isr - {LEADER}:
            if controller.admitted.epochs[member] == controller.epochs[member]:
                assert leader.high_watermark <= self.has[member], "a member of the ISR lacks what is committed"

    async def calm_down(self) -> None:
        """When everything works again, everybody is in sync soon."""
        bench = self.bench
        bench.peers.fate = lambda: "answered"
        bench.view.fails = False
        bench.controller.members_changed()
        await bench.view.refresh()
        for _ in range(10):
            for follower_id in self.has:
                self.has[follower_id] = bench.partitions[0].end_offset
                bench.fetch(follower_id, self.has[follower_id])
            await asyncio.sleep(RETRY_S)
            self.check()
        assert bench.isr() == (1, 2, 3) and bench.leader.maximal_isr == {1, 2, 3}
        assert bench.leader.high_watermark == bench.partitions[0].end_offset


@pytest.mark.parametrize("seed", range(150))
def test_nothing_is_lost_in_any_disorder(run: Callable[..., None], seed: int) -> None:
    async def script(bench: Bench) -> None:
        disorder = Disorder(bench, Random(seed))
        for _ in range(120):
            await disorder.step()
        await disorder.calm_down()

    run(script, isr=(1, 2, 3))


def test_a_leader_alone_answers_at_once_until_it_asks_for_another(run: Callable[..., None]) -> None:
    """From then on the other one may be in sync, so what is written has to be there as well."""

    async def script(bench: Bench) -> None:
        bench.peers.fate = lambda: "lost"
        assert bench.partitions[0].takes_at_once
        bench.fetch(2, 10)
        while not bench.asked:
            await asyncio.sleep(0.01)
        assert not bench.partitions[0].takes_at_once

    run(script, isr=(1,))
