"""The embedded keeper: a znode tree that is served with ZooKeeper's own protocol.

A session outlives its connection: until its timeout has passed without a word from its client, the client may come
again on another connection with the session's id and password, and finds its ephemeral znodes as they were. Whoever
knows both may also end it. After a restart of the keeper every session has its whole timeout again.

Sessions and their ends are in the tree and its journal; who was heard of when is only here.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from dataclasses import dataclass

from penstock.base.world import Address, Listener, SocketOptions, Stream, World
from penstock.zookeeper.errors import CoordinationError, StorageFullError
from penstock.zookeeper.keeper_connection import KeeperConnection
from penstock.zookeeper.protocol import ConnectRequest, ConnectResponse
from penstock.zookeeper.store import Store

logger = logging.getLogger(__name__)

PASSWORD_BYTES = 16
CONNECTIONS_MAX = 1000
SWEEPS_PER_TIMEOUT = 20  # a session may live longer than its timeout by this part of it


@dataclass(frozen=True, slots=True)
class KeeperLimits:
    """How short and how long a session's timeout may be."""

    session_timeout_ms_min: int = 500
    session_timeout_ms_max: int = 60_000


class Keeper:
    """A server on a store."""

    def __init__(self, world: World, store: Store, limits: KeeperLimits | None = None) -> None:
        self.store = store
        self._world = world
        self._limits = limits or KeeperLimits()
        self._listener: Listener | None = None
        self._connections: set[KeeperConnection] = set()
        self._of_session: dict[int, KeeperConnection] = {}
        now_s = world.clock.monotonic()
        self._deadlines_s = {
            session_id: now_s + session.timeout_ms / 1000 for session_id, session in store.tree.sessions.items()
        }
        self._sweeping: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int) -> Address:
        """Begin to serve; returns where."""
        self._listener = await self._world.network.listen(host, port, self._accept, SocketOptions())
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())
        return self._listener.address

    async def close(self) -> None:
        """End all connections; the sessions stay, for whoever serves the store next."""
        if self._listener is not None:
            self._listener.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        for connection in list(self._connections):
            connection.end("the keeper stops")

    # ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, connection: KeeperConnection, request: ConnectRequest) -> ConnectResponse:
        """Open a session for a connection, or give it the one it names; a timeout of 0 says that it is over."""
        if request.session_id:
            return self._attach(connection, request.session_id, request.password)
        limits = self._limits
        timeout_ms = max(limits.session_timeout_ms_min, min(request.timeout_ms, limits.session_timeout_ms_max))
        password = self._world.random.randbytes(PASSWORD_BYTES)
        session_id = await self.store.open_session(timeout_ms, password)
        return self._attach(connection, session_id, password)

    def _attach(self, connection: KeeperConnection, session_id: int, password: bytes) -> ConnectResponse:
        session = self.store.tree.sessions.get(session_id)
        if session is None or not hmac.compare_digest(session.password, password):
            return ConnectResponse(0, 0, 0, bytes(PASSWORD_BYTES))
        before = self._of_session.get(session_id)
        self._of_session[session_id] = connection
        if before is not None and before is not connection:
            before.end("the session has moved to another connection")
        self._deadlines_s[session_id] = self._world.clock.monotonic() + session.timeout_ms / 1000
        return ConnectResponse(0, session.timeout_ms, session_id, password)

    def heard_of(self, session_id: int) -> None:
        """The client of a session is alive."""
        session = self.store.tree.sessions.get(session_id)
        if session is not None:
            self._deadlines_s[session_id] = self._world.clock.monotonic() + session.timeout_ms / 1000

    async def _sweep(self) -> None:
        """End the sessions whose clients are silent for too long."""
        while True:
            shortest_ms = min(
                (session.timeout_ms for session in self.store.tree.sessions.values()),
                default=self._limits.session_timeout_ms_min,
            )
            await asyncio.sleep(shortest_ms / 1000 / SWEEPS_PER_TIMEOUT)
            now_s = self._world.clock.monotonic()
            for session_id in [each for each, deadline_s in self._deadlines_s.items() if deadline_s <= now_s]:
                await self._expire(session_id)

    async def _expire(self, session_id: int) -> None:
        del self._deadlines_s[session_id]
        if session_id not in self.store.tree.sessions:
            return
        logger.info("session %#x is silent for too long and ends", session_id)
        try:
            await self.store.close_session(session_id)
        except StorageFullError:
            self._deadlines_s[session_id] = self._world.clock.monotonic()  # tried again by the next sweep
            return
        except CoordinationError as error:
            logger.error("session %#x could not be ended: %s", session_id, error)
            return
        connection = self._of_session.pop(session_id, None)
        if connection is not None:
            connection.end("the session has expired")

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, stream: Stream) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            stream.close()
            return
        self._connections.add(KeeperConnection(self, stream))

    def ended(self, connection: KeeperConnection) -> None:
        """A connection is over."""
        self._connections.discard(connection)
        if self._of_session.get(connection.session_id) is connection:
            del self._of_session[connection.session_id]
        self.store.watches.forget(lambda watcher: watcher.callback == connection.tell)

    def four_letters(self, word: bytes) -> bytes | None:
        """The answer to one of ZooKeeper's four-letter words."""
        if word == b"ruok":
            return b"imok"
        if word == b"srvr":
            tree = self.store.tree
            return (
                "Zookeeper version: 3.8 (penstock keeper)\n"
                f"Connections: {len(self._connections)}\n"
                f"Zxid: {tree.last_zxid:#x}\n"
                "Mode: standalone\n"
                f"Node count: {len(tree.nodes)}\n"
            ).encode()
        return None
