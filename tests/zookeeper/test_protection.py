"""Znodes with secrets are for the brokers alone."""

from __future__ import annotations

import pytest

from penstock.base.zookeeper_connect import ZooKeeperConnect
from penstock.testing.sim_keeper import ADDRESS, SimKeeper
from penstock.zookeeper.broker_session import open_broker_session
from penstock.zookeeper.errors import NoAuthError
from penstock.zookeeper.operations import Create
from penstock.zookeeper.renewal import RenewedClient

ENSEMBLE = ZooKeeperConnect((ADDRESS,), "")


async def session(service: SimKeeper, name: str, digest: str | None, *, protects_all: bool = False) -> RenewedClient:
    process = service.process(name)
    process.world.disk.make_dirs(f"/{name}")
    opening = open_broker_session(
        process.world, ENSEMBLE, f"/{name}", timeout_ms=30_000, digest=digest, protects_all=protects_all
    )
    return await service.within(name, opening)


@pytest.mark.parametrize("protects_all", [False, True])
def test_others_cannot_read_secrets(protects_all: bool) -> None:
    with SimKeeper() as service:

        async def script() -> None:
            ours = await session(service, "broker", "penstock:secret", protects_all=protects_all)
            made = [Create("/config"), Create("/config/scram"), Create("/config/scram/alice", b"keys")]
            made += [Create("/config/tokens"), Create("/config/tokens/id", b"of alice")]
            made += [Create("/config/brokers"), Create("/config/brokers/1", b"a password")]
            await service.within(
                "broker", ours.multi([*made, Create("/login_secret", b"x"), Create("/cluster", b"id")])
            )
            for name, digest in (("stranger", None), ("guesser", "penstock:wrong")):
                theirs = await session(service, name, digest)
                for path in ("/config/scram/alice", "/config/tokens/id", "/config/brokers/1", "/login_secret"):
                    with pytest.raises(NoAuthError):
                        await service.within(name, theirs.get(path))
                assert (await service.within(name, theirs.get("/cluster")))[0] == b"id"
                change = theirs.multi([Create("/cluster/x")])
                if protects_all:
                    with pytest.raises(NoAuthError):
                        await service.within(name, change)
                else:
                    change.close()
            peer = await session(service, "peer", "penstock:secret")
            assert (await service.within("peer", peer.get("/config/scram/alice")))[0] == b"keys"

        service.run(script())
