"""A broker's sessions, from one life of the broker to the next.

The present session is always written down in the broker's folder, before anything is done with it. So whoever finds the
broker gone can end it at once, instead of waiting for its timeout: the watcher, and the broker itself when it starts
again. Whoever opens a broker's session holds the lock of its folder: then the one that is written down there is of a
process that is gone.
"""

from __future__ import annotations

import logging

from penstock.base.world import Disk, World, read_file, write_file_durably
from penstock.base.zookeeper_connect import ZooKeeperConnect
from penstock.zookeeper.client import Client
from penstock.zookeeper.errors import ConnectionLossError, SessionExpiredError
from penstock.zookeeper.protection import acl_of, strict_acl_of
from penstock.zookeeper.renewal import RenewedClient
from penstock.zookeeper.session import SESSION_FILE, Session, decode_session, encode_session

logger = logging.getLogger(__name__)


async def open_broker_session(
    world: World,
    ensemble: ZooKeeperConnect,
    folder: str,
    *,
    timeout_ms: int,
    digest: str | None = None,
    protects_all: bool = False,
) -> RenewedClient:
    """End what the last life of the broker left, and begin anew. Waits for the service for as long as it takes.

    `digest` is "user:password", which makes znodes with secrets the brokers' own; `protects_all` the others as well.
    """
    await _end_leftover(world, ensemble, folder, timeout_ms)

    async def connect() -> Client:
        client = await Client.connect(
            world,
            ensemble.servers,
            timeout_ms=timeout_ms,
            chroot=ensemble.chroot,
            digest=None if digest is None else digest.encode(),
        )
        if digest is not None:
            client.acl_of = strict_acl_of if protects_all else acl_of
        try:
            await _make_chroot(client)
        except BaseException:
            await client.close()
            raise
        return client

    opened = await RenewedClient.open(connect, lambda session: _write_down(world.disk, folder, session))
    opened.keeps_secrets = digest is not None
    return opened


async def _make_chroot(client: Client) -> None:
    while True:
        try:
            await client.make_chroot()
            return
        except ConnectionLossError:
            continue  # it waits for a connection


async def _end_leftover(world: World, ensemble: ZooKeeperConnect, folder: str, timeout_ms: int) -> None:
    path = _path(folder)
    if not world.disk.exists(path):
        return
    session = decode_session(read_file(world.disk, path))
    if session is None:
        logger.warning("%s is damaged: a session that the last run left ends by its timeout", path)
        return
    try:
        left = await Client.connect(world, ensemble.servers, timeout_ms=timeout_ms, session=session)
    except SessionExpiredError:
        return
    await left.close()
    logger.info("ended the session that the last run left")


def _write_down(disk: Disk, folder: str, session: Session) -> None:
    """Without it nothing is unsafe: the cluster only notices later that this broker is gone."""
    try:
        write_file_durably(disk, _path(folder), encode_session(session))
    except OSError as error:
        logger.warning("the session could not be written to %s: %s", _path(folder), error)


def _path(folder: str) -> str:
    return f"{folder}/{SESSION_FILE}"
