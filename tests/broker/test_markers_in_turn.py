"""Markers among many writers, in the simulator: where every append waits for a sync, their turn comes all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.broker import Broker
from penstock.broker.markers import Ending
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import BATCH_TIMESTAMP_MS, SimClient, batch_of
from penstock.testing.sim_world import Simulation
from penstock.wire.batch import read_header

ALWAYS = {"flush.mode": "always"}
T = TopicPartition("t", 0)
ENDING = Ending(ProducerEpoch(1, 0), True, 0, 1)


class Bench:
    """A broker with one topic that syncs always, and a writer who has something to append at the end of every sync."""

    def __init__(self) -> None:
        self.simulation = Simulation(4, limit_s=10_000)
        self.sim_broker = SimBroker(self.simulation.machine("broker"))
        self.world = self.simulation.machine("client").process("client").world
        self.written = 0

    @property
    def broker(self) -> Broker:
        assert self.sim_broker.running is not None
        return self.sim_broker.running.broker

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.sim_broker.start()
            client = await SimClient.connect(self.world, "broker", PORT)
            await client.create_topic("t", configs=ALWAYS)
            self._write()
            await asyncio.wait_for(drive(), 60)

        self.simulation.run(main())

    def _write(self) -> None:
        partition = self.broker.partitions.find(*T)
        batch = memoryview(bytearray(batch_of([b"x"])))
        partition.append(batch, read_header(batch), BATCH_TIMESTAMP_MS)
        self.written += 1
        partition.when_writable(self._write)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


def test_a_marker_is_written_while_others_write(bench: Bench) -> None:
    async def drive() -> None:
        for _ in range(5):
            assert await bench.broker.markers.append(T, [ENDING], lambda: True) == [Error.NONE]
        assert bench.written > 5

    bench.run(drive)


def test_work_on_a_partition_is_done_in_turn(bench: Bench) -> None:
    async def drive() -> None:
        partition = bench.broker.partitions.find("t", 0)

        def work() -> int:
            assert not partition.is_syncing
            return partition.log.end_offset

        def refuse() -> int:
            raise ApiError(Error.INVALID_TXN_STATE)

        ends = [await partition.in_turn(work) for _ in range(20)]
        assert ends == sorted(ends)
        with pytest.raises(ApiError):
            for _ in range(20):
                await partition.in_turn(refuse)
        given_up = [asyncio.ensure_future(partition.in_turn(work)) for _ in range(10)]
        for each in given_up:
            each.cancel()
        await partition.in_turn(work)

    bench.run(drive)


def test_what_is_not_wanted_any_more_is_not_written(bench: Bench) -> None:
    async def drive() -> None:
        for _ in range(5):
            assert await bench.broker.markers.append(T, [ENDING], lambda: False) == [Error.NOT_COORDINATOR]
        assert not list(bench.broker.partitions.find("t", 0).log.producers)

    bench.run(drive)
