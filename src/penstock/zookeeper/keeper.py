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
from penstock.zookeeper.errors import BadArgumentsError, ConnectionLossError, CoordinationError, StorageFullError
from penstock.zookeeper.keeper_connection import KeeperConnection
from penstock.zookeeper.operations import CloseSession, OpenSession, RemoveContainer
from penstock.zookeeper.protocol import ConnectRequest, ConnectResponse
from penstock.zookeeper.store import Store
from penstock.zookeeper.tree import Applied

logger = logging.getLogger(__name__)

PASSWORD_BYTES = 16
SWEEP_S_MIN = 0.005
FULL_DISK_PAUSE_S = 1.0
NO_SESSION = ConnectResponse(0, 0, 0, bytes(PASSWORD_BYTES))


@dataclass(frozen=True, slots=True)
class KeeperLimits:
    """What the keeper takes from its clients."""

    session_timeout_ms_min: int = 500
    session_timeout_ms_max: int = 60_000
    connections_max: int = 1000
    strangers_max: int = 200  # connections without a session; a new one takes the place of the oldest
    stranger_timeout_ms: int = 10_000
    sessions_max: int = 10_000
    in_flight_bytes_max: int = 64 << 20  # requests of all connections; beyond, each finishes its own first
    container_check_ms: int = 60_000


class Keeper:
    """A server on a store. The sessions that it finds there are for it to end: open those of this process after it."""

    def __init__(self, world: World, store: Store, limits: KeeperLimits | None = None) -> None:
        self.store = store
        self.in_flight_bytes = 0
        self._world = world
        self._limits = limits or KeeperLimits()
        self._listener: Listener | None = None
        self._connections: dict[KeeperConnection, None] = {}
        self._strangers: dict[KeeperConnection, float] = {}  # until when they may be one, the oldest first
        self._of_session: dict[int, KeeperConnection] = {}
        now_s = world.clock.monotonic()
        self._deadlines_s = {
            session_id: now_s + session.timeout_ms / 1000 for session_id, session in store.tree.sessions.items()
        }
        self._sweeping: asyncio.Task[None] | None = None
        self._next_container_check_s = now_s + self._limits.container_check_ms / 1000
        store.on_stopped.append(lambda error: self._end_connections(f"the keeper has stopped: {error}"))

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
        self._end_connections("the keeper stops")

    @property
    def is_crowded(self) -> bool:
        return self.in_flight_bytes > self._limits.in_flight_bytes_max

    # ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, connection: KeeperConnection, request: ConnectRequest) -> ConnectResponse:
        """Open a session for a connection, or give it the one it names; a timeout of 0 says that it is over."""
        limits = self._limits
        timeout_ms = max(limits.session_timeout_ms_min, min(request.timeout_ms, limits.session_timeout_ms_max))
        if request.session_id:
            await self.store.read(lambda _tree: None)  # the session it names may be one of this moment
            return self._attach(connection, request.session_id, request.password, timeout_ms)
        if len(self.store.tree.sessions) >= limits.sessions_max:
            raise BadArgumentsError(f"there are {limits.sessions_max} sessions already")
        session_id = self.store.tree.last_zxid + 1
        password = self._world.random.randbytes(PASSWORD_BYTES)
        opened = self.store.submit(OpenSession(session_id, timeout_ms, password))
        # From here it can expire, also when its client goes away before it has heard of it.
        self._deadlines_s[session_id] = self._world.clock.monotonic() + timeout_ms / 1000
        try:
            await opened
        except CoordinationError:
            self._deadlines_s.pop(session_id, None)
            raise
        return self._attach(connection, session_id, password, timeout_ms)

    def _attach(
        self, connection: KeeperConnection, session_id: int, password: bytes, timeout_ms: int
    ) -> ConnectResponse:
        session = self.store.tree.sessions.get(session_id)
        # A session of this process has no password: nobody can take it over.
        if session is None or not session.password or not hmac.compare_digest(session.password, password):
            return NO_SESSION
        before = self._of_session.get(session_id)
        self._of_session[session_id] = connection
        if before is not None and before is not connection:
            before.end("the session has moved to another connection")
        # Never longer than it was opened with: that is what it has left if the keeper starts again.
        connection.timeout_ms = min(timeout_ms, session.timeout_ms)
        connection.session_id = session_id
        self._strangers.pop(connection, None)
        self.heard_of(connection)
        return ConnectResponse(0, connection.timeout_ms, session_id, password)

    def heard_of(self, connection: KeeperConnection) -> None:
        """The client of a session is alive."""
        if connection.session_id in self.store.tree.sessions:
            self._deadlines_s[connection.session_id] = self._world.clock.monotonic() + connection.timeout_ms / 1000

    # ── what time ends ───────────────────────────────────────────────────────────────────────────────────────────

    async def _sweep(self) -> None:
        """End the sessions whose clients are silent for too long, and look after strangers and containers."""
        while self.store.failure is None:
            now_s = self._world.clock.monotonic()
            for stranger in [each for each, deadline_s in self._strangers.items() if deadline_s <= now_s]:
                stranger.end("it did not ask for a session")
            for session_id in [each for each, deadline_s in self._deadlines_s.items() if deadline_s <= now_s]:
                self.expire(session_id)
            if now_s >= self._next_container_check_s:
                self._next_container_check_s = now_s + self._limits.container_check_ms / 1000
                self._remove_containers()
            # No session is shorter than twice this, so that none which begins now can be seen too late.
            longest_s = self._limits.session_timeout_ms_min / 2000
            next_s = min(self._deadlines_s.values(), default=now_s + longest_s) - now_s
            await asyncio.sleep(min(max(next_s, SWEEP_S_MIN), longest_s))

    def expire(self, session_id: int) -> None:
        """End a session, whose client is told when it asks."""
        self._deadlines_s.pop(session_id, None)
        if session_id not in self.store.tree.sessions:
            return
        try:
            closed = self.store.submit(CloseSession(session_id))
        except ConnectionLossError:  # it has stopped
            return

        def done(outcome: asyncio.Future[Applied]) -> None:
            error = None if outcome.cancelled() else outcome.exception()
            if isinstance(error, StorageFullError):
                self._deadlines_s[session_id] = self._world.clock.monotonic() + FULL_DISK_PAUSE_S  # tried again
                return
            if error is None:
                logger.info("session %#x was silent for too long and has ended", session_id)
            connection = self._of_session.get(session_id)
            if connection is not None:
                connection.end("the session has expired")
            self.store.watches.forget(lambda watcher: watcher.session_id == session_id)

        closed.add_done_callback(done)

    def _remove_containers(self) -> None:
        for path in self.store.tree.empty_containers():
            try:
                removed = self.store.submit(RemoveContainer(path))
            except ConnectionLossError:
                return
            removed.add_done_callback(lambda done: done.cancelled() or done.exception())  # or the next time

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, stream: Stream) -> None:
        limits = self._limits
        if self._strangers and (
            len(self._strangers) >= limits.strangers_max or len(self._connections) >= limits.connections_max
        ):
            next(iter(self._strangers)).end("there are too many connections")
        if len(self._connections) >= limits.connections_max or self.store.failure is not None:
            stream.close()
            return
        connection = KeeperConnection(self, stream)
        self._connections[connection] = None
        self._strangers[connection] = self._world.clock.monotonic() + limits.stranger_timeout_ms / 1000

    def ended(self, connection: KeeperConnection) -> None:
        """A connection is over."""
        self._connections.pop(connection, None)
        self._strangers.pop(connection, None)
        if self._of_session.get(connection.session_id) is connection:
            del self._of_session[connection.session_id]
        if connection.has_session:
            self.store.watches.forget(lambda watcher: watcher.callback == connection.tell)

    def _end_connections(self, reason: str) -> None:
        for connection in list(self._connections):
            connection.end(reason)

    def four_letters(self, word: bytes) -> bytes | None:
        """The answer to one of ZooKeeper's four-letter words."""
        if word == b"ruok":
            return b"imok"
        if word == b"srvr":
            tree = self.store.tree
            return (
                "Zookeeper version: 3.8 (penstock keeper)\n"
                f"Connections: {len(self._connections)}\n"
                f"Zxid: {self.store.durable_zxid:#x}\n"
                "Mode: standalone\n"
                f"Node count: {len(tree.nodes)}\n"
            ).encode()
        return None
