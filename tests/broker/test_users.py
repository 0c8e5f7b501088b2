"""Who can log in with SCRAM, and what those look like who cannot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.base.errors import Error
from penstock.broker.users import MECHANISM_NAMES, Users
from penstock.sasl.scram_server import DEFAULT_SHAPES, Shape, shape_of
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_world import Simulation
from penstock.wire.messages import k51_alter_user_scram_credentials as k51

OF_KAFKAS_TOOLS = b"1kq7v0c3m5x9z2a4s6d8f0g1h3"


def run(play: Callable[[Users, SimClient], Awaitable[None]]) -> None:
    with Simulation(3, limit_s=1000) as simulation:
        broker = SimBroker(simulation.machine("broker"), {})
        world = simulation.machine("client").process("client").world

        async def main() -> None:
            running = await broker.start()
            await play(running.broker.users, await SimClient.connect(world, "broker", PORT))

        simulation.run(main())


async def alter(client: SimClient, **fields: list[object]) -> None:
    (row,) = (await client.call(k51.AlterUserScramCredentialsRequest(**fields))).results  # type: ignore[arg-type]
    assert row.error_code == Error.NONE, row.error_message


def test_who_does_not_exist_looks_like_those_who_do() -> None:
    async def play(users: Users, client: SimClient) -> None:
        name = MECHANISM_NAMES[1]
        assert users.shapes_of(name) == DEFAULT_SHAPES
        given = {"name": "alice", "mechanism": 1, "salted_password": bytes(32)}
        new = k51.AlterUserScramCredentialsRequestUpsertion
        await alter(client, upsertions=[new(**given, iterations=8192, salt=OF_KAFKAS_TOOLS)], deletions=[])
        assert shape_of(users.made_up(name, "nobody")) == Shape(8192, 26, is_text=True)
        assert shape_of(users.made_up(MECHANISM_NAMES[2], "nobody")) in DEFAULT_SHAPES
        await alter(client, upsertions=[new(**given, iterations=4096, salt=bytes(range(64)))], deletions=[])
        assert users.shapes_of(name) == (Shape(4096, 64, is_text=False),)
        gone = k51.AlterUserScramCredentialsRequestDeletion(name="alice", mechanism=1)
        await alter(client, upsertions=[], deletions=[gone])
        assert users.shapes_of(name) == DEFAULT_SHAPES

    run(play)
