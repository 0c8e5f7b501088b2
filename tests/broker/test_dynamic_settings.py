"""Settings that are altered while the broker runs take effect, and are still there after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.base.errors import ApiError, Error
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_world import EPOCH_MS, Simulation
from penstock.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


class Bench:
    """A broker and one client of it."""

    def __init__(self) -> None:
        self.simulation = Simulation(5, limit_s=10_000_000)
        self.machine = self.simulation.machine("broker")
        self.broker = SimBroker(self.machine, {"log.retention.check.interval.ms": "1000"})
        self.world = self.simulation.machine("client").process("client").world

    async def connect(self) -> SimClient:
        return await SimClient.connect(self.world, "broker", PORT)

    def run(self, drive: Callable[[SimClient], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.broker.start()
            await drive(await self.connect())

        self.simulation.run(main())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


async def alter(client: SimClient, kind: int, name: str, setting: str, value: str | None) -> Error:
    config = IncrementalAlterConfigsRequestConfig(
        name=setting, config_operation=SET if value is not None else DELETE, value=value
    )
    resource = IncrementalAlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=[config])
    return Error((await client.call(IncrementalAlterConfigsRequest(resources=[resource]))).responses[0].error_code)


async def produce(client: SimClient, size: int = 10, topic: str = "t") -> Error:
    batch = batch_of([bytes(size)], timestamp_ms=EPOCH_MS)
    return Error((await client.produce(topic, 0, batch)).error_code)


def test_the_largest_batch_of_a_topic(bench: Bench) -> None:
    async def drive(client: SimClient) -> None:
        await client.create_topic("t")
        assert await produce(client, 5000) is Error.NONE
        assert await alter(client, TOPIC, "t", "max.message.bytes", "1000") is Error.NONE
        assert await produce(client, 5000) is Error.MESSAGE_TOO_LARGE
        bench.broker.kill()
        await bench.broker.start()
        client = await bench.connect()
        assert await produce(client, 5000) is Error.MESSAGE_TOO_LARGE
        assert await alter(client, TOPIC, "t", "max.message.bytes", None) is Error.NONE
        assert await produce(client, 5000) is Error.NONE

    bench.run(drive)


@pytest.mark.parametrize("entity", ["0", ""])
def test_the_default_of_the_broker_reaches_topics_that_set_no_other(bench: Bench, entity: str) -> None:
    async def drive(client: SimClient) -> None:
        await client.create_topic("t")
        await client.create_topic("own", configs={"max.message.bytes": "100000"})
        assert await alter(client, BROKER, entity, "message.max.bytes", "1000") is Error.NONE
        assert await produce(client, 5000) is Error.MESSAGE_TOO_LARGE
        assert await produce(client, 5000, "own") is Error.NONE
        bench.broker.kill()
        await bench.broker.start()
        client = await bench.connect()
        assert await produce(client, 5000) is Error.MESSAGE_TOO_LARGE

    bench.run(drive)


def test_values_that_are_wrong_change_nothing(bench: Bench) -> None:
    async def drive(client: SimClient) -> None:
        await client.create_topic("t")
        assert await alter(client, TOPIC, "t", "max.message.bytes", "-5") is Error.INVALID_CONFIG
        assert await alter(client, TOPIC, "t", "no.such.setting", "1") is Error.INVALID_CONFIG
        assert await alter(client, TOPIC, "unknown", "retention.ms", "1") is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(client, BROKER, "0", "log.dirs", "/elsewhere") is not Error.NONE
        assert await alter(client, BROKER, "7", "message.max.bytes", "1000") is not Error.NONE
        assert await produce(client, 5000) is Error.NONE

    bench.run(drive)


def test_the_flush_mode_of_a_topic_both_ways(bench: Bench) -> None:
    async def drive(client: SimClient) -> None:
        await client.create_topic("t")
        assert await produce(client) is Error.NONE
        assert await alter(client, TOPIC, "t", "flush.mode", "always") is Error.NONE
        for _ in range(3):
            assert await produce(client) is Error.NONE
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        client = await bench.connect()
        assert len(await client.read_all("t", 0)) == 4
        assert await alter(client, TOPIC, "t", "flush.mode", "os") is Error.NONE
        bench.machine.disk.slow_when(lambda operation: operation.kind == "sync", 100)
        began = bench.simulation.loop.time()
        assert await produce(client) is Error.NONE
        assert bench.simulation.loop.time() - began < 1

    bench.run(drive)


def test_retention_by_time(bench: Bench) -> None:
    async def drive(client: SimClient) -> None:
        await client.create_topic("t")
        for _ in range(3):
            assert await produce(client) is Error.NONE
        await asyncio.sleep(60)
        assert await client.list_offset("t", 0, -2) == 0
        assert await alter(client, TOPIC, "t", "retention.ms", "1000") is Error.NONE
        await asyncio.sleep(60)
        assert await client.list_offset("t", 0, -2) == 3
        assert await client.read_all("t", 0, 3) == []
        answer = await client.fetch("t", 0, 0)
        assert answer.error_code == Error.OFFSET_OUT_OF_RANGE
        assert await produce(client) is Error.NONE
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        client = await bench.connect()
        assert await client.list_offset("t", 0, -2) == 3

    bench.run(drive)


def test_how_many_connections_one_address_may_have(bench: Bench) -> None:
    async def drive(client: SimClient) -> None:
        await client.create_topic("t")
        assert await alter(client, BROKER, "", "max.connections.per.ip", "2") is Error.NONE
        second, third = await bench.connect(), await bench.connect()
        assert await produce(second) is Error.NONE
        with pytest.raises(ConnectionError):
            await produce(third)
        assert await alter(client, BROKER, "", "max.connections.per.ip", None) is Error.NONE
        assert await produce(await bench.connect()) is Error.NONE

    bench.run(drive)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(bench: Bench) -> None:
    bench.broker = SimBroker(bench.machine, {"connections.max.idle.ms": "5000"})

    async def drive(client: SimClient) -> None:
        busy = await bench.connect()
        await client.create_topic("t")
        for _ in range(10):
            await asyncio.sleep(1)
            assert await produce(busy) is Error.NONE
        with pytest.raises((ConnectionError, ApiError)):
            await client.fetch("t", 0, 0)
        waiting = await bench.connect()
        answer = await waiting.fetch("t", 0, 10, max_wait_ms=20_000)
        assert answer.error_code == 0

    bench.run(drive)
