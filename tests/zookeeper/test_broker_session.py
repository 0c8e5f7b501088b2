"""A broker's session from one life of the broker to the next, and how it is written down."""

from __future__ import annotations

import asyncio
import logging

import pytest

from penstock.base.world import read_file
from penstock.base.zookeeper_connect import ZooKeeperConnect
from penstock.testing.sim_keeper import ADDRESS, SimKeeper
from penstock.zookeeper.broker_session import open_broker_session
from penstock.zookeeper.renewal import RenewedClient
from penstock.zookeeper.session import Session, decode_session, encode_session

TIMEOUT_MS = 30_000
FOLDER = "/data"
FILE = "/data/session"
ENSEMBLE = ZooKeeperConnect((ADDRESS,), "/some/where")


async def begin(service: SimKeeper, name: str = "broker", folder: str = FOLDER) -> RenewedClient:
    process = service.process(name)
    process.world.disk.make_dirs(FOLDER)
    return await service.within(name, open_broker_session(process.world, ENSEMBLE, folder, timeout_ms=TIMEOUT_MS))


def lives(service: SimKeeper, session: Session) -> bool:
    assert service.keeper is not None
    return session.session_id in service.keeper.store.tree.sessions


def written(service: SimKeeper) -> Session | None:
    return decode_session(read_file(service.process("broker").world.disk, FILE))


def test_it_is_written_down_before_it_is_used_and_ended_by_the_next_start() -> None:
    with SimKeeper() as service:

        async def script() -> None:
            first = await begin(service)
            assert written(service) == first.session
            await service.within("broker", first.create("/mine", b"", ephemeral=True))
            service.process("broker").kill()
            before_s = service.process("broker").world.clock.monotonic()
            second = await begin(service)
            assert not lives(service, first.session) and lives(service, second.session)
            assert await service.within("broker", second.exists("/mine")) is None
            assert service.process("broker").world.clock.monotonic() - before_s < TIMEOUT_MS / 1000 / 10
            assert written(service) == second.session
            await service.within("broker", second.close())
            third = await begin(service)
            assert not lives(service, second.session) and lives(service, third.session)

        service.run(script())


def test_a_session_that_expired_leaves_the_next_one_in_the_file() -> None:
    with SimKeeper() as service:

        async def script() -> None:
            coordination = await begin(service)
            first = coordination.session
            service.simulation.network.links.cut("broker", "keeper")
            await service.until(lambda: not lives(service, first))
            service.simulation.network.links.heal("broker", "keeper")
            await service.until(lambda: coordination.session != first)
            assert written(service) == coordination.session

        service.run(script())


def test_the_start_waits_for_the_service() -> None:
    with SimKeeper() as service:

        async def script() -> None:
            left = await begin(service)
            service.process("broker").kill()
            service.kill()
            starting = asyncio.ensure_future(begin(service))
            await asyncio.sleep(1)
            assert not starting.done()
            service.start()
            again = await starting
            assert not lives(service, left.session) and lives(service, again.session)

        service.run(script())


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1, "session_id": "x"}', b"\xff"]
)
def test_a_damaged_file_is_left_behind(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert decode_session(content) is None
    with SimKeeper() as service:

        async def script() -> None:
            disk = service.process("broker").world.disk
            disk.make_dirs(FOLDER)
            file = disk.open(FILE, create=True)
            file.write([content], 0)
            file.close()
            with caplog.at_level(logging.WARNING):
                coordination = await begin(service)
            assert "is damaged" in caplog.text
            assert written(service) == coordination.session

        service.run(script())


def test_a_file_that_cannot_be_written_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with SimKeeper() as service:

        async def script() -> None:
            coordination = await begin(service, folder="/nowhere")
            await service.within("broker", coordination.create("/mine", b"", ephemeral=True))

        service.run(script())
    assert "could not be written to /nowhere/session" in caplog.text


def test_the_password_is_in_the_file_and_nowhere_else() -> None:
    session = Session(0x1234, bytes(range(16)))
    assert decode_session(encode_session(session)) == session
    assert repr(session) == "Session(0x1234)"
