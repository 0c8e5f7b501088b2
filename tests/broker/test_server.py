"""Who may connect, and when."""

from __future__ import annotations

import asyncio

from penstock.base.world import SocketOptions
from penstock.broker.connection import Intake
from penstock.broker.peer_log import PeerLog
from penstock.broker.server import ConnectionLimits, Server
from penstock.testing.sim_world import Simulation


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
