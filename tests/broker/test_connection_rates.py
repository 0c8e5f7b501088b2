"""How fast connections may come."""

from __future__ import annotations

import asyncio

import pytest

from penstock.base.world import SocketOptions, Stream
from penstock.broker.client_quotas import ClientQuotas
from penstock.broker.connection import Intake
from penstock.broker.connection_rates import ConnectionRates
from penstock.broker.peer_log import PeerLog
from penstock.broker.server import ConnectionLimits, Server
from penstock.testing.sim_world import Simulation


class _TwoWindows:
    def integer(self, name: str) -> int:
        return 2 if name.endswith("num") else 1


def is_closed(stream: Stream) -> bool:
    try:
        return stream.recv_into(bytearray(1)) == 0
    except BlockingIOError:
        return False


@pytest.mark.parametrize("rate", [2, 1000])
def test_those_who_come_too_fast_wait_in_order(rate: int) -> None:
    async def drive() -> None:
        await server.listen("PLAINTEXT", "0.0.0.0", 9092, SocketOptions())
        server.open()
        for _ in range(6):
            await client.network.connect("broker", 9092)
        await asyncio.sleep(0.1)
        assert (len(server.connections) < 6) == (rate == 2)
        await asyncio.sleep(20)
        assert len(server.connections) == 6
        await server.stop(0)

    with Simulation(2, limit_s=100) as simulation:
        world = simulation.machine("broker").process("broker").world
        client = simulation.machine("client").process("client").world
        quotas = ClientQuotas(world.clock, _TwoWindows())  # type: ignore[arg-type]
        limits = ConnectionLimits(100, 100, {}, idle_s_max=600)
        server = Server(
            world.network, world.clock, Intake(1 << 20, 1 << 20), limits, lambda *_: None, PeerLog(world.clock)
        )
        server.rates = ConnectionRates(quotas, lambda _listener: rate)
        simulation.run(drive())


def test_an_address_over_its_quota_is_not_served() -> None:
    async def drive() -> None:
        await server.listen("PLAINTEXT", "0.0.0.0", 9092, SocketOptions())
        server.open()
        streams = [await client.network.connect("broker", 9092) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert len(server.connections) == 2
        assert not any(map(is_closed, streams))  # to connect again at once would gain nothing
        await asyncio.sleep(2)
        assert [is_closed(stream) for stream in streams] == [False, False, True, True, True]
        assert quotas.throttled["connection_creation_rate"].times == 3
        await asyncio.sleep(5)
        await client.network.connect("broker", 9092)
        await asyncio.sleep(0.1)
        assert len(server.connections) == 3
        await server.stop(0)

    with Simulation(2, limit_s=100) as simulation:
        world = simulation.machine("broker").process("broker").world
        client = simulation.machine("client").process("client").world
        quotas = ClientQuotas(world.clock, _TwoWindows())  # type: ignore[arg-type]
        quotas.use({"ips/<default>": {"connection_creation_rate": "2"}})
        limits = ConnectionLimits(100, 100, {}, idle_s_max=600)
        server = Server(
            world.network, world.clock, Intake(1 << 20, 1 << 20), limits, lambda *_: None, PeerLog(world.clock)
        )
        server.rates = ConnectionRates(quotas, lambda _listener: 2**31 - 1)
        simulation.run(drive())


def test_an_address_has_no_more_connections_because_they_had_to_wait() -> None:
    async def drive() -> None:
        await server.listen("PLAINTEXT", "0.0.0.0", 9092, SocketOptions())
        server.open()
        streams = [await client.network.connect("broker", 9092) for _ in range(8)]
        await asyncio.sleep(60)
        assert len(server.connections) == 3
        assert sum(map(is_closed, streams)) == 5 and server.refused["max.connections.per.ip"] == 5
        await server.stop(0)

    with Simulation(2, limit_s=100) as simulation:
        world = simulation.machine("broker").process("broker").world
        client = simulation.machine("client").process("client").world
        quotas = ClientQuotas(world.clock, _TwoWindows())  # type: ignore[arg-type]
        limits = ConnectionLimits(100, 3, {}, idle_s_max=600)
        server = Server(
            world.network, world.clock, Intake(1 << 20, 1 << 20), limits, lambda *_: None, PeerLog(world.clock)
        )
        server.rates = ConnectionRates(quotas, lambda _listener: 1)
        simulation.run(drive())
