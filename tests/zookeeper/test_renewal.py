"""A coordination that goes on with a new session when the old one has expired."""

from __future__ import annotations

import pytest

from penstock.testing.sim_keeper import ADDRESS, SimKeeper
from penstock.zookeeper.client import Client
from penstock.zookeeper.coordination import SessionState
from penstock.zookeeper.errors import SessionExpiredError
from penstock.zookeeper.renewal import RenewedClient
from penstock.zookeeper.session import Session


def test_a_new_session_follows_an_expired_one() -> None:
    with SimKeeper() as service:
        sessions: list[Session] = []
        states: list[SessionState] = []

        async def script() -> None:
            world = service.process("broker").world

            async def connect() -> Client:
                return await Client.connect(world, [ADDRESS], timeout_ms=4000)

            renewed = await service.within("broker", RenewedClient.open(connect, sessions.append))
            renewed.add_listener(states.append)
            await service.within("broker", renewed.create("/mine", b"", ephemeral=True))
            assert renewed.lease_until_s > world.clock.monotonic()
            first = renewed.session_id
            service.simulation.network.links.cut("broker", "keeper")
            await service.until(lambda: world.clock.monotonic() > renewed.lease_until_s)
            await service.until(lambda: not _lives(service, first))
            service.simulation.network.links.heal("broker", "keeper")
            await service.until(lambda: renewed.session_id != first and renewed.state is SessionState.CONNECTED)
            assert await service.within("broker", renewed.exists("/mine")) is None
            assert [session.session_id for session in sessions] == [first, renewed.session_id]
            assert states[0] is SessionState.SUSPENDED and states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED]
            assert renewed.expiries == 1
            await service.within("broker", renewed.close())
            with pytest.raises(SessionExpiredError):
                await service.within("broker", renewed.exists("/mine"))

        service.run(script())


def _lives(service: SimKeeper, session_id: int) -> bool:
    assert service.keeper is not None
    return session_id in service.keeper.store.tree.sessions
