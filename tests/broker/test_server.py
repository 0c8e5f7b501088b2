"""Who may connect, and when."""

from __future__ import annotations

import asyncio
from collections import Counter

from penstock.base.broker_settings import load_broker_settings
from penstock.base.world import SocketOptions
from penstock.broker.connection import Intake
from penstock.broker.peer_log import PeerLog
from penstock.broker.server import ConnectionLimits, Server
from penstock.broker.start import connection_limits
from penstock.testing.sim_world import Simulation


def server_of(simulation: Simulation, limits: ConnectionLimits) -> Server:
    world = simulation.machine("broker").process("broker").world
    intake = Intake(1 << 20, 1 << 20)
    return Server(world.network, world.clock, intake, limits, lambda *_: None, PeerLog(world.clock))


def test_no_more_wait_for_a_broker_that_cannot_serve_yet_than_it_will_take() -> None:
    frames: list[bytes] = []

    async def drive() -> None:
        await server.listen("PLAINTEXT", "0.0.0.0", 9092, SocketOptions())
        streams = [await client.network.connect("broker", 9092) for _ in range(3)]
        for stream in streams:
            stream.send(b"\0\0\0\x08" + bytes(8))
        await asyncio.sleep(1)
        assert frames == []
        assert streams[2].recv_into(bytearray(1)) == 0
        server.open()
        await asyncio.sleep(1)
        assert len(frames) == 2

    with Simulation(2, limit_s=100) as simulation:
        world = simulation.machine("broker").process("broker").world
        client = simulation.machine("client").process("client").world
        limits = ConnectionLimits(2, 100, {}, idle_s_max=60)
        server = Server(
            world.network,
            world.clock,
            Intake(1 << 20, 1 << 20),
            limits,
            lambda _connection, frame: frames.append(bytes(frame)),
            PeerLog(world.clock),
        )
        simulation.run(drive())


def test_a_listener_has_a_limit_of_its_own() -> None:
    async def drive() -> None:
        await server.listen("NEAR", "0.0.0.0", 9092, SocketOptions())
        await server.listen("FAR", "0.0.0.0", 9093, SocketOptions())
        server.open()
        far = [await client.network.connect("broker", 9093) for _ in range(2)]
        await asyncio.sleep(1)
        assert far[1].recv_into(bytearray(1)) == 0
        for _ in range(2):
            await client.network.connect("broker", 9092)
        await asyncio.sleep(1)
        assert Counter(each.listener_name for each in server.connections) == {"NEAR": 2, "FAR": 1}
        far[0].close()
        await asyncio.sleep(1)
        await client.network.connect("broker", 9093)  # there is room again
        await asyncio.sleep(1)
        assert len(server.connections) == 3 and server.refused["max.connections"] == 1

    with Simulation(2, limit_s=100) as simulation:
        client = simulation.machine("client").process("client").world
        server = server_of(simulation, ConnectionLimits(10, 100, {}, idle_s_max=60, per_listener_max={"FAR": 1}))
        simulation.run(drive())


def test_brokers_are_let_in_where_clients_took_all_connections() -> None:
    async def drive() -> None:
        await server.listen("CLIENTS", "0.0.0.0", 9092, SocketOptions())
        await server.listen("BROKERS", "0.0.0.0", 9093, SocketOptions())
        server.open()
        clients = []
        for _ in range(2):
            clients.append(await client.network.connect("broker", 9092))
            await asyncio.sleep(1)
        clients[0].send(b"\0\0\0\x08" + bytes(8))
        await asyncio.sleep(1)
        server.sweep(server._clock.monotonic())
        third = await client.network.connect("broker", 9092)
        await asyncio.sleep(1)
        assert third.recv_into(bytearray(1)) == 0
        await client.network.connect("broker", 9093)
        await asyncio.sleep(1)
        assert clients[1].recv_into(bytearray(1)) == 0  # it was silent for longer than the first
        await client.network.connect("broker", 9093)
        await asyncio.sleep(1)
        assert [each.listener_name for each in server.connections] == ["BROKERS"] * 2
        last = await client.network.connect("broker", 9093)  # brokers do not throw out each other
        await asyncio.sleep(1)
        assert last.recv_into(bytearray(1)) == 0 and len(server.connections) == 2

    with Simulation(2, limit_s=100) as simulation:
        client = simulation.machine("client").process("client").world
        server = server_of(simulation, ConnectionLimits(2, 100, {}, idle_s_max=60, brokers_listener="BROKERS"))
        simulation.run(drive())


def test_limits_are_of_an_address_however_it_is_written() -> None:
    limits = connection_limits(
        load_broker_settings({"max.connections.per.ip.overrides": "0:0:0:0:0:0:0:1:7,10.0.0.1:3"})
    )
    assert [limits.allowed_from(host) for host in ("::1", "10.0.0.1")] == [7, 3]


def test_limits_come_from_the_settings_of_each_listener() -> None:
    settings = load_broker_settings(
        {
            "listeners": "CLIENTS://localhost:9092,BROKERS://localhost:9093",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "max.connections": "50",
            "listener.name.clients.max.connections": "20",
        }
    )
    limits = connection_limits(settings)
    assert limits.connections_max == 50
    assert limits.per_listener_max == {"CLIENTS": 20, "BROKERS": 50}
    assert limits.brokers_listener == "BROKERS"
    assert connection_limits(load_broker_settings({})).brokers_listener is None
