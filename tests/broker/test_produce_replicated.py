"""Produce to partitions with replicas, in the simulator: what waits for whom, and what is told when it cannot be known.

The follower is played by the test: it says to the partition how far it has fetched. Every case goes both ways of
Produce: the first request of a producer takes the general one, those like it the short one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.broker.partition import Partition
from penstock.broker.produce_waits import ProduceWaits
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of, produce_request
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.zookeeper.topic_znodes import PartitionState

FOLLOWER = 1
BROKER_EPOCH = 5
WAYS = ["general", "short"]


class Bench:
    """A broker whose topics have a second replica, if a test wants one."""

    def __init__(self) -> None:
        self.simulation = Simulation(3, limit_s=10_000)
        self.sim_broker = SimBroker(self.simulation.machine("broker"))
        self.world = self.simulation.machine("client").process("client").world
        self.waits: list[ProduceWaits] = []
        self.client: SimClient

    @property
    def now(self) -> float:
        return self.simulation.loop.time()

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.sim_broker.start()
            self.client = await self.connect()
            await drive()

        self.simulation.run(main())

    async def connect(self) -> SimClient:
        return await SimClient.connect(self.world, "broker", PORT)

    async def replicated(self, topic: str = "t", way: str = "general", **configs: str) -> Partition:
        """A partition that has a follower; if it is to be taken the short way, there has been a produce already."""
        await self.client.create_topic(topic, configs={name.replace("_", "."): text for name, text in configs.items()})
        partition = self.partition(topic)
        self.become(partition, isr=(0, FOLLOWER))
        if way == "short":
            for acks in (-1, 1):
                first = self.produce(topic, acks)
                await self.until(lambda: partition.log.end_offset > partition.high_watermark)
                self.fetched(partition)
                await first
        return partition

    def partition(self, topic: str) -> Partition:
        assert self.sim_broker.running is not None
        return self.sim_broker.running.broker.partitions.find(topic, 0)

    def become(self, partition: Partition, **changes: Any) -> None:
        state = partition.state
        changed = PartitionState(
            replicas=(0, FOLLOWER),
            isr=changes.get("isr", state.isr),
            leader=changes.get("leader", state.leader),
            leader_epoch=changes.get("leader_epoch", state.leader_epoch),
            partition_epoch=state.partition_epoch + 1,
        )
        partition.take_role(changed, 0, may_lead=True)

    def fetched(self, partition: Partition) -> None:
        """The follower has all that there is."""
        partition.follower_fetched(FOLLOWER, BROKER_EPOCH, partition.log.end_offset, 0)

    def produce(self, topic: str = "t", acks: int = -1, timeout_ms: int = 30_000) -> asyncio.Future[Any]:
        answer = self.client.send(produce_request(topic, 0, batch_of([b"x"]), acks, timeout_ms), 11)
        return asyncio.ensure_future(_only(answer))

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0.001)


async def _only(answer: asyncio.Future[Any]) -> Any:
    return (await answer).responses[0].partition_responses[0]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench()
    begin = ProduceWaits.__init__

    def noted(self: ProduceWaits, *arguments: Any) -> None:
        made.waits.append(self)
        begin(self, *arguments)

    monkeypatch.setattr(ProduceWaits, "__init__", noted)
    yield made
    made.simulation.close()


@pytest.mark.parametrize("way", WAYS)
def test_acks_all_waits_for_the_follower(bench: Bench, way: str) -> None:
    async def drive() -> None:
        partition = await bench.replicated(way=way)
        offset = partition.log.end_offset
        waiting = [bench.produce() for _ in range(3)]
        await asyncio.sleep(5)
        assert not any(each.done() for each in waiting)
        assert len(bench.waits[0]) == (3 if way == "short" else 2)
        partition.follower_fetched(FOLLOWER, BROKER_EPOCH, offset + 1, 0)
        first = await waiting[0]
        assert (first.error_code, first.base_offset) == (Error.NONE, offset)
        await asyncio.sleep(1)
        assert not waiting[1].done()
        bench.fetched(partition)
        assert [(await each).base_offset for each in waiting] == [offset, offset + 1, offset + 2]
        assert len(bench.waits[0]) == 0

    bench.run(drive)


@pytest.mark.parametrize("way", WAYS)
def test_acks_1_waits_for_nobody(bench: Bench, way: str) -> None:
    async def drive() -> None:
        partition = await bench.replicated(way=way)
        answer = await bench.produce(acks=1)
        assert (answer.error_code, answer.base_offset) == (Error.NONE, partition.log.end_offset - 1)
        assert partition.high_watermark < partition.log.end_offset

    bench.run(drive)


@pytest.mark.parametrize("way", WAYS)
def test_too_few_in_sync(bench: Bench, way: str) -> None:
    async def drive() -> None:
        partition = await bench.replicated(way=way, min_insync_replicas="2")
        bench.become(partition, isr=(0,))
        end_offset = partition.log.end_offset
        assert (await bench.produce()).error_code == Error.NOT_ENOUGH_REPLICAS
        assert partition.log.end_offset == end_offset
        assert (await bench.produce(acks=1)).error_code == Error.NONE

    bench.run(drive)


@pytest.mark.parametrize("way", WAYS)
def test_a_leader_that_is_replaced_leaves_it_open_and_says_so_at_once(bench: Bench, way: str) -> None:
    async def drive() -> None:
        partition = await bench.replicated(way=way)
        waiting = [bench.produce() for _ in range(2)]
        await asyncio.sleep(1)
        began = bench.now
        bench.become(partition, leader=FOLLOWER, leader_epoch=partition.epoch + 1)
        assert [(await each).error_code for each in waiting] == [Error.REQUEST_TIMED_OUT] * 2
        assert bench.now - began < 1
        end_offset = partition.log.end_offset
        for acks in (-1, 1):
            assert (await bench.produce(acks=acks)).error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert partition.log.end_offset == end_offset

    bench.run(drive)


@pytest.mark.parametrize("way", WAYS)
def test_the_time_of_a_request(bench: Bench, way: str) -> None:
    async def drive() -> None:
        partition = await bench.replicated(way=way)
        await bench.client.call(produce_request("t", 0, batch_of([b"x"]), 1, 3000), 11)
        bench.fetched(partition)
        first = bench.produce(timeout_ms=3000)
        await asyncio.sleep(0.1)
        if way == "short":
            bench.fetched(partition)
            assert (await first).error_code == Error.NONE
        began = bench.now
        late = [first] if way == "general" else [bench.produce(timeout_ms=3000) for _ in range(3)]
        assert {(await each).error_code for each in late} == {Error.REQUEST_TIMED_OUT}
        assert 2.5 < bench.now - began < 4
        patient = bench.produce()
        await asyncio.sleep(0.1)
        bench.fetched(partition)
        assert (await patient).error_code == Error.NONE
        await asyncio.sleep(5)
        assert len(bench.waits[0]) == 0

    bench.run(drive)


def test_answers_keep_their_order(bench: Bench) -> None:
    async def drive() -> None:
        partition = await bench.replicated(way="short")
        await bench.client.create_topic("alone")
        for _ in range(2):
            assert (await bench.produce("alone")).error_code == Error.NONE
        waiting = [bench.produce(), bench.produce("alone"), bench.produce(), bench.produce("alone")]
        await asyncio.sleep(1)
        assert not any(each.done() for each in waiting)
        assert bench.partition("alone").log.end_offset == 4
        bench.fetched(partition)
        assert [(await each).error_code for each in waiting] == [Error.NONE] * 4

    bench.run(drive)


def test_a_client_that_goes_while_it_waits(bench: Bench) -> None:
    async def drive() -> None:
        partition = await bench.replicated(way="short")
        waiting = [bench.produce() for _ in range(2)]
        await asyncio.sleep(1)
        bench.client.close()
        await asyncio.sleep(1)
        bench.fetched(partition)
        assert len(bench.waits[0]) == 0
        for each in waiting:
            each.cancel()
        bench.client = await bench.connect()
        again = bench.produce()
        await asyncio.sleep(1)
        bench.fetched(partition)
        assert (await again).error_code == Error.NONE

    bench.run(drive)


def test_several_partitions_wait_together(bench: Bench) -> None:
    async def drive() -> None:
        one, other = await bench.replicated("one"), await bench.replicated("other")
        topics = [
            ProduceRequestTopic(name=name, partition_data=[ProduceRequestPartition(index=0, records=batch_of([b"x"]))])
            for name in ("one", "other")
        ]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
        answer = asyncio.ensure_future(bench.client.call(request, 11))
        await asyncio.sleep(1)
        bench.fetched(one)
        await asyncio.sleep(1)
        assert not answer.done()
        bench.become(other, leader=FOLLOWER, leader_epoch=other.epoch + 1)
        errors = [row.partition_responses[0].error_code for row in (await answer).responses]
        assert errors == [Error.NONE, Error.REQUEST_TIMED_OUT]

    bench.run(drive)


def test_both_ways_refuse_with_the_same_bytes(bench: Bench) -> None:
    """Whoever waited on the short way gets an answer that is made apart from the general one."""

    async def drive() -> None:
        partition = await bench.replicated()
        answers = []
        for _ in range(2):  # the first one goes the general way, and the second is like it
            waiting = bench.client.send(produce_request("t", 0, batch_of([b"x"]), -1, 30_000), 11)
            await asyncio.sleep(1)
            bench.become(partition, leader=FOLLOWER, leader_epoch=partition.epoch + 1)
            answers.append(await waiting)
            bench.become(partition, leader=0, leader_epoch=partition.epoch + 1)
        assert len(bench.waits[0]) == 0
        assert answers[0] == answers[1]

    bench.run(drive)


def test_a_leader_in_a_new_epoch_takes_writes_the_short_way_again(bench: Bench) -> None:
    async def drive() -> None:
        partition = await bench.replicated(way="short")
        bench.become(partition, leader=FOLLOWER, leader_epoch=partition.epoch + 1)
        bench.become(partition, leader=0, leader_epoch=partition.epoch + 1)
        waiting = bench.produce()
        await bench.until(lambda: len(bench.waits[0]) == 1)
        bench.fetched(partition)
        assert (await waiting).error_code == Error.NONE

    bench.run(drive)
