"""A clean stop, in the simulator: what was asked for is answered, and readers that wait do not hold it up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of, produce_request
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic


class Bench:
    """A broker and its clients on one simulated network."""

    def __init__(self) -> None:
        self.simulation = Simulation(5, limit_s=10_000)
        self.broker = SimBroker(self.simulation.machine("broker"))
        self.world = self.simulation.machine("client").process("client").world

    async def connect(self) -> SimClient:
        return await SimClient.connect(self.world, "broker", PORT)

    async def stop(self) -> float:
        """Stop the broker; how long it took, in seconds."""
        began = self.simulation.loop.time()
        await self.broker.stop()
        return self.simulation.loop.time() - began

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.broker.start()
            await drive()

        self.simulation.run(main())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


def waiting_fetch(max_wait_ms: int) -> FetchRequest:
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchRequestTopic(topic="t", partitions=[part])])


def test_a_reader_that_waits_does_not_hold_up_the_stop(bench: Bench) -> None:
    async def drive() -> None:
        reader = await bench.connect()
        await reader.create_topic("t")
        waiting = asyncio.ensure_future(reader.call(waiting_fetch(60_000), 12))
        await asyncio.sleep(1)
        assert await bench.stop() < 0.5
        with pytest.raises(OSError):
            await waiting

    bench.run(drive)


def test_a_reader_that_asks_again_and_again_does_not_hold_up_the_stop(bench: Bench) -> None:
    async def drive() -> None:
        reader = await bench.connect()
        await reader.create_topic("t")

        async def follow() -> None:
            while True:
                await reader.call(waiting_fetch(100), 12)

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(1)
        assert await bench.stop() < 0.5
        with pytest.raises(OSError):
            await following

    bench.run(drive)


def test_half_a_request_does_not_hold_up_the_stop(bench: Bench) -> None:
    async def drive() -> None:
        stream = await bench.world.network.connect("broker", PORT)
        stream.send(b"\0\0\1\0half of it")
        await asyncio.sleep(1)
        assert await bench.stop() < 0.5
        stream.close()

    bench.run(drive)


def test_a_write_that_waits_for_its_sync_is_answered_before_the_end(bench: Bench) -> None:
    async def drive() -> None:
        writer = await bench.connect()
        await writer.create_topic("t", configs={"flush.mode": "always"})
        answers = [
            asyncio.ensure_future(writer.call(produce_request("t", 0, batch_of([b"%d" % number])), 9))
            for number in range(3)
        ]
        partition = bench.broker.running.broker.partitions.find("t", 0) if bench.broker.running else None
        while partition is not None and partition.log.end_offset < 1:
            await asyncio.sleep(0.001)
        assert not any(answer.done() for answer in answers)
        await bench.stop()
        assert (await answers[0]).responses[0].partition_responses[0].error_code == 0
        for answer in answers[1:]:
            answer.cancel()

    bench.run(drive)
