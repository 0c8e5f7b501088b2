"""Metadata when a leader may just have died: the answer waits for the news, but never long, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.doubts import DOUBT_S_MAX, NAMED_S, NOTICE_S, Doubts
from penstock.testing.sim_world import Simulation
from penstock.zookeeper.topic_znodes import PartitionState, Topic
from penstock.zookeeper.znodes import AdmittedBrokers, BrokerNode, Endpoint


class View:
    """As much of a view as is looked at."""

    def __init__(self) -> None:
        self.brokers = {n: BrokerNode(endpoints=(Endpoint(listener="L", host="h", port=n),)) for n in (1, 2)}
        self.broker_epochs = {1: 10, 2: 20}
        self.admitted = AdmittedBrokers(epochs=self.broker_epochs)
        self.topics = {"t": Topic("t", UUID(int=1), (PartitionState((1, 2), (1, 2), 1),))}
        self.listener: Callable[[ViewChange], Awaitable[None]] | None = None

    def on_change(self, listener: Callable[[ViewChange], Awaitable[None]]) -> None:
        self.listener = listener

    async def tell(self, *, members: bool = True) -> None:
        assert self.listener is not None
        await self.listener(ViewChange(frozenset({"t"}), members=members))

    async def lose(self, broker_id: int) -> None:
        del self.brokers[broker_id], self.broker_epochs[broker_id]
        await self.tell()

    async def elect(self, leader: int) -> None:
        self.topics = {"t": Topic("t", UUID(int=1), (PartitionState((1, 2), (leader,), leader, 1),))}
        await self.tell(members=False)


def run(drive: Callable[[View, Doubts, Callable[[], float]], Awaitable[None]]) -> None:
    with Simulation(1) as simulation:
        process = simulation.machine("m").process("p")

        async def inside() -> None:
            view = View()
            doubts = Doubts(process.world.clock, as_view(view))
            await view.tell()
            await drive(view, doubts, process.world.clock.monotonic)

        async def main() -> None:
            await process.start(inside())

        simulation.run(main())


def as_view(view: View) -> ClusterView:
    return view  # type: ignore[return-value]


def test_without_a_doubt_nobody_waits() -> None:
    async def drive(_view: View, doubts: Doubts, now: Callable[[], float]) -> None:
        before = now()
        await doubts.settled(["t"], before)
        assert now() == before

    run(drive)


def test_who_asks_again_is_answered_a_moment_later() -> None:
    async def drive(_view: View, doubts: Doubts, now: Callable[[], float]) -> None:
        await asyncio.sleep(5)
        before = now()
        await doubts.settled(["t"], before - 4)
        assert before < now() <= before + 2 * NOTICE_S

    run(drive)


def test_the_answer_waits_for_the_next_leader() -> None:
    async def drive(view: View, doubts: Doubts, now: Callable[[], float]) -> None:
        doubts.arise(1)
        asking = asyncio.ensure_future(doubts.settled(["t"], now()))
        await asyncio.sleep(0.05)
        await view.lose(1)
        await asyncio.sleep(0.05)
        assert not asking.done()
        await view.elect(2)
        await asyncio.sleep(0.001)
        assert asking.done()

    run(drive)


def test_a_loss_that_the_view_knows_first_is_waited_for_too() -> None:
    async def drive(view: View, doubts: Doubts, now: Callable[[], float]) -> None:
        await view.lose(1)
        asking = asyncio.ensure_future(doubts.settled(["t"], now()))
        await asyncio.sleep(0.05)
        assert not asking.done()
        await view.elect(2)
        await asking

    run(drive)


def test_a_leader_that_lives_is_doubted_once_and_not_for_long() -> None:
    async def drive(_view: View, doubts: Doubts, now: Callable[[], float]) -> None:
        doubts.arise(1)
        before = now()
        await doubts.settled(["t"], before)
        assert before < now() <= before + 2 * DOUBT_S_MAX
        doubts.arise(1)
        before = now()
        await doubts.settled(["t"], before)
        assert now() == before

    run(drive)


def test_other_topics_are_answered_at_once() -> None:
    async def drive(view: View, doubts: Doubts, now: Callable[[], float]) -> None:
        view.topics["u"] = Topic("u", UUID(int=2), (PartitionState((2,), (2,), 2),))
        doubts.arise(1)
        before = now()
        await doubts.settled(["u", "unknown"], before)
        assert now() == before

    run(drive)


def test_the_dead_are_named_for_some_seconds_and_those_who_left_are_not() -> None:
    async def drive(view: View, doubts: Doubts, _now: Callable[[], float]) -> None:
        node = view.brokers[1]
        await view.lose(1)
        assert doubts.just_died() == {1: node}
        await asyncio.sleep(NAMED_S + 0.1)
        assert doubts.just_died() == {}
        view.admitted = AdmittedBrokers(epochs=view.broker_epochs, leaving=(2,))
        await view.lose(2)
        assert doubts.just_died() == {}

    run(drive)
