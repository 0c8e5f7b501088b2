"""Three brokers and their keeper in the simulator: what is acknowledged is everywhere, and replicas are read from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from penstock.base.broker_rows_server import RACK_AWARE_SELECTOR
from penstock.base.broker_settings import load_broker_settings
from penstock.base.errors import Error
from penstock.base.settings import Source
from penstock.broker.partition import Partition
from penstock.testing.sim_client import SimClient, batch_of, batches_of
from penstock.testing.sim_cluster import SimCluster, SimClusterBroker
from penstock.testing.sim_replicas import stored_in
from penstock.testing.sim_world import Process, Simulation
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)

pytestmark = pytest.mark.sim

SETTINGS = {"min.insync.replicas": "2", "default.replication.factor": "3", "replica.lag.time.max.ms": "3000"}


class Bench:
    """A cluster with one topic of one partition, and a client."""

    def __init__(self, seed: int, settings: Mapping[str, str] | None = None, *, racks: tuple[str, ...] = ()) -> None:
        self.simulation = Simulation(seed, shuffle=True, limit_s=10_000)
        self.cluster = SimCluster(self.simulation, 3, {**SETTINGS, **(settings or {})}, has_watchers=True)
        for broker, rack in zip(self.cluster.brokers, racks, strict=False):
            broker.settings = load_broker_settings({**broker.settings.given(Source.STATIC_BROKER), "broker.rack": rack})
        self.process: Process = self.simulation.machine("client").process("client")

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.cluster.start()
            await self.create("t")
            await drive()

        with self.simulation:
            self.simulation.run(main())

    async def create(self, name: str, **configs: str) -> None:
        client = await self.cluster.brokers[0].connect(self.process)
        rows = [CreateTopicsRequestConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=3, configs=rows)
        (answer,) = (await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
        assert not answer.error_code

    def partition(self, broker: SimClusterBroker, topic: str = "t") -> Partition:
        assert broker.running is not None
        return broker.running.broker.partitions.find(topic, 0)

    @property
    def running(self) -> list[SimClusterBroker]:
        return [broker for broker in self.cluster.brokers if broker.is_running and broker.running is not None]

    def leader(self) -> SimClusterBroker | None:
        for broker in self.running:
            if self.partition(broker).leader is not None:
                return broker
        return None

    async def until(self, is_so: Callable[[], bool], within_s: float = 30.0) -> float:
        start_s = self.simulation.loop.time()
        while not is_so():
            assert self.simulation.loop.time() < start_s + within_s
            await asyncio.sleep(0.01)
        return self.simulation.loop.time() - start_s

    async def led(self) -> SimClusterBroker:
        await self.until(lambda: self.leader() is not None)
        found = self.leader()
        assert found is not None
        return found

    async def write(self, value: bytes) -> int:
        """With acks=all, until it is acknowledged; its offset."""
        while True:
            broker = self.leader()
            try:
                if broker is not None:
                    client = await broker.connect(self.process)
                    answer = await client.produce("t", 0, batch_of([value]))
                    client.close()
                    if not answer.error_code:
                        offset: int = answer.base_offset
                        return offset
            except OSError:
                pass
            await asyncio.sleep(0.05)

    def logs(self) -> list[list[Any]]:
        return [stored_in(self.partition(broker)) for broker in self.running]

    def is_in_step(self) -> bool:
        parts = [self.partition(broker) for broker in self.running]
        ends = {(part.log.end_offset, part.high_watermark, part.log.end_offset) for part in parts}
        return len(ends) == 1 and all(set(part.state.isr) == {1, 2, 3} for part in parts)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_acknowledged_survives_its_leaders(seed: int) -> None:
    bench = Bench(seed)

    async def drive() -> None:
        acknowledged: dict[int, bytes] = {}
        for number in range(9):
            value = b"%d" % number
            acknowledged[await bench.write(value)] = value
            if number % 3 == 2:
                leader = await bench.led()
                leader.kill()
                value = b"after %d" % number
                acknowledged[await bench.write(value)] = value
                await leader.start()
                await bench.until(bench.is_in_step)
        await bench.until(bench.is_in_step)
        logs = bench.logs()
        assert logs[0] == logs[1] == logs[2]
        found = {each.offset: each.value for each in logs[0]}
        assert all(found[offset] == value for offset, value in acknowledged.items())

    bench.run(drive)


def test_a_broker_that_returns_is_in_sync_again_soon() -> None:
    bench = Bench(7)

    async def drive() -> None:
        await bench.write(b"a")
        leader = await bench.led()
        follower = next(broker for broker in bench.running if broker is not leader)
        follower.kill()
        for number in range(50):
            await bench.write(b"x" * 1000 + b"%d" % number)
        await follower.start()
        assert await bench.until(bench.is_in_step) < 2

    bench.run(drive)


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back() -> None:
    bench = Bench(8)

    async def drive() -> None:
        await bench.write(b"a")
        leader = await bench.led()
        others = [broker for broker in bench.running if broker is not leader]
        follower = next(broker for broker in others if broker is not bench.cluster.controller)
        bench.simulation.network.links.cut_both(leader.machine.name, follower.machine.name)
        took_s = 0.0
        start_s = bench.simulation.loop.time()
        await bench.write(b"b")
        took_s = bench.simulation.loop.time() - start_s
        assert 2 < took_s < 10, "committed once the ISR is smaller"
        bench.simulation.network.links.heal_all()
        await bench.until(bench.is_in_step, 15)

    bench.run(drive)


def test_with_syncs_before_the_acknowledgement_power_lost_everywhere_loses_nothing() -> None:
    bench = Bench(9, {"log.flush.mode": "always"})

    async def drive() -> None:
        acknowledged = {await bench.write(b"%d" % number): b"%d" % number for number in range(10)}
        for broker in bench.cluster.brokers:
            broker.lose_power("all")
        for broker in bench.cluster.brokers:
            broker.power_on()
        await asyncio.gather(*(broker.start() for broker in bench.cluster.brokers))
        await bench.write(b"last")
        await bench.until(bench.is_in_step)
        found = {each.offset: each.value for each in bench.logs()[0]}
        assert all(found[offset] == value for offset, value in acknowledged.items())

    bench.run(drive)


# ── reading from followers ───────────────────────────────────────────────────────────────────────────────────────────


async def read(
    client: SimClient, topic_id: Any, offset: int, *, rack: str = "", wait_ms: int = 0, version: int = 18
) -> FetchResponsePartition:
    part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    row = FetchRequestTopic(partitions=[part])
    if version >= 13:
        row.topic_id = topic_id
    else:
        row.topic = "t"
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[row])
    if version >= 11:
        request.rack_id = rack
    answer = await client.call(request, version)
    found: FetchResponsePartition = answer.responses[0].partitions[0]
    return found


@pytest.mark.parametrize("version", [11, 18])
def test_a_consumer_is_sent_to_the_replica_in_its_rack(version: int) -> None:
    racks = ("a", "b", "c")
    bench = Bench(10, {"replica.selector.class": RACK_AWARE_SELECTOR}, racks=racks)

    async def drive() -> None:
        await bench.write(b"one")
        leader = await bench.led()
        follower = next(broker for broker in bench.running if broker is not leader)
        rack, own_rack = racks[follower.broker_id - 1], racks[leader.broker_id - 1]
        topic_id = bench.partition(leader).topic_id
        at_leader, at_follower = [await broker.connect(bench.process) for broker in (leader, follower)]

        sent = await read(at_leader, topic_id, 0, rack=rack, version=version, wait_ms=10_000)
        assert sent.preferred_read_replica == follower.broker_id and not sent.records and not sent.error_code
        assert sent.high_watermark == 1
        for other in (own_rack, "nowhere", ""):
            here = await read(at_leader, topic_id, 0, rack=other, version=version)
            assert here.preferred_read_replica == -1 and len(batches_of(here)) == 1

        there = await read(at_follower, topic_id, 0, rack=rack, version=version)
        assert len(batches_of(there)) == 1 and there.preferred_read_replica == -1
        waiting = asyncio.ensure_future(read(at_follower, topic_id, 1, rack=rack, version=version, wait_ms=10_000))
        await asyncio.sleep(0.1)
        start_s = bench.simulation.loop.time()
        await bench.write(b"two")
        assert len(batches_of(await waiting)) == 1
        assert bench.simulation.loop.time() - start_s < 0.1, "its follower knows at once what is committed"
        beyond = await read(at_follower, topic_id, 99, rack=rack, version=version)
        assert beyond.error_code == Error.NOT_LEADER_OR_FOLLOWER, "only the leader knows what is out of range"

    bench.run(drive)


@pytest.mark.parametrize("version", [4, 10, 11, 18])
def test_a_follower_serves_only_those_who_were_sent_to_it(version: int) -> None:
    bench = Bench(11)

    async def drive() -> None:
        await bench.write(b"one")
        leader = await bench.led()
        follower = next(broker for broker in bench.running if broker is not leader)
        client = await follower.connect(bench.process)
        answer = await read(client, bench.partition(leader).topic_id, 0, version=version)
        assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader.leader_id == (leader.broker_id if version >= 16 else -1)

    bench.run(drive)


def test_without_the_selector_nobody_is_sent_anywhere() -> None:
    bench = Bench(12, racks=("a", "b", "c"))

    async def drive() -> None:
        await bench.write(b"one")
        leader = await bench.led()
        client = await leader.connect(bench.process)
        for rack in ("a", "b", "c"):
            answer = await read(client, bench.partition(leader).topic_id, 0, rack=rack)
            assert answer.preferred_read_replica == -1 and len(batches_of(answer)) == 1

    bench.run(drive)
