"""Replicas that compact on their own, at different times, in the simulator: gaps are fetched over, nothing is lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from penstock.broker.partition import Partition
from penstock.testing.log_machine import read_all
from penstock.testing.sim_cluster import SimCluster, SimClusterBroker
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from penstock.wire.records import Record, build_batch, read_records

pytestmark = pytest.mark.sim

SETTINGS = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "replica.lag.time.max.ms": "3000",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.05",
    "log.initial.task.delay.ms": "10",
}
KEYS = 12
Newest = dict[bytes, tuple[int, bytes]]


class Story:
    """A cluster with one compacted topic, somebody who writes to it, and somebody who kills brokers."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed, shuffle=True, limit_s=10_000)
        self.cluster = SimCluster(self.simulation, 3, SETTINGS, has_watchers=True)
        self.process = self.simulation.machine("client").process("client")
        self.chance = random.Random(f"replicated compaction {seed}")
        self.newest: Newest = {}
        self.written = 0

    def partition(self, broker: SimClusterBroker) -> Partition | None:
        if not broker.is_running or broker.running is None:
            return None
        return next((each for each in broker.running.broker.partitions if each.name.topic == "t"), None)

    def held(self) -> list[Partition]:
        return [found for broker in self.cluster.brokers if (found := self.partition(broker)) is not None]

    async def create(self) -> None:
        client = await self.cluster.brokers[0].connect(self.process)
        rows = [CreateTopicsRequestConfig(name="cleanup.policy", value="compact")]
        topic = CreateTopicsRequestTopic(name="t", num_partitions=1, replication_factor=3, configs=rows)
        (answer,) = (await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
        assert not answer.error_code

    async def write(self) -> None:
        """One batch with acks=all, until it is acknowledged. What was not acknowledged may be there as well."""
        self.written += 1
        keys = self.chance.sample(range(KEYS), self.chance.randrange(1, 4))
        records = [Record(n, 1000 + n, b"k%d" % key, b"%d" % self.written + bytes(30)) for n, key in enumerate(keys)]
        while True:
            for broker in self.cluster.brokers:
                partition = self.partition(broker)
                if partition is None or partition.leader is None:
                    continue
                try:
                    client = await broker.connect(self.process)
                    answer = await client.produce("t", 0, build_batch(records), timeout_ms=2000)
                    client.close()
                except OSError:
                    continue
                if not answer.error_code:
                    for record in records:
                        assert record.key is not None and record.value is not None
                        self.newest[record.key] = answer.base_offset + record.offset, record.value
                    return
            await asyncio.sleep(0.05)

    def roll_somewhere(self) -> None:
        for partition in self.held():
            if self.chance.random() < 0.3 and not (partition.is_syncing or partition.is_gone):
                partition.log.roll(self.process.world.clock.wall_ms())

    async def compacted(self) -> None:
        """All are in step, and have compacted all that they could."""
        for partition in self.held():
            partition.log.roll(self.process.world.clock.wall_ms())
        for _ in range(3000):
            logs = [partition.log for partition in self.held()]
            is_level = len(logs) == 3 and len({log.end_offset for log in logs}) == 1
            if is_level and all(log.cleaned_offset == log.segments[-1].base_offset for log in logs):
                return
            await asyncio.sleep(0.02)
        raise AssertionError([(log.cleaned_offset, log.segments[-1].base_offset, log.end_offset) for log in logs])

    def check(self) -> None:
        for partition in self.held():
            found: Newest = {}
            count = 0
            for stored in read_all(partition.log):
                for record in read_records(memoryview(stored.content)):
                    assert record.key is not None and record.value is not None
                    found[record.key] = record.offset, record.value
                    count += 1
            assert count < self.written
            for key, (offset, value) in self.newest.items():
                assert found[key][0] >= offset, "an acknowledged record is lost"
                assert found[key] == (offset, value) or int(found[key][1].rstrip(b"\0")) >= int(value.rstrip(b"\0"))


@pytest.mark.parametrize("seed", range(4))
def test_replicas_compact_on_their_own_through_restarts(seed: int) -> None:
    story = Story(seed)

    async def drive() -> None:
        await story.cluster.start()
        await story.create()
        for _ in range(5):
            victim = story.chance.choice(story.cluster.brokers)
            victim.kill()
            for _ in range(25):
                await story.write()
                story.roll_somewhere()
                await asyncio.sleep(story.chance.random() * 0.1)
            await victim.start()
            for _ in range(10):
                await story.write()
                story.roll_somewhere()
        await story.compacted()
        story.check()

    with story.simulation:
        story.simulation.run(drive())
