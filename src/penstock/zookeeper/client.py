"""A session with ZooKeeper, or with our keeper, over the network: what brokers use as their `Coordination`.

How the session lives on over connections, and what its lease is, is in `client_session.py`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.base.world import Address, World
from penstock.zookeeper import operations as ops
from penstock.zookeeper.client_session import OVER, ClientSession
from penstock.zookeeper.client_watches import Chroot
from penstock.zookeeper.coordination import SessionState, Watch
from penstock.zookeeper.errors import (
    RUNTIME_INCONSISTENCY,
    BadArgumentsError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    error_for,
)
from penstock.zookeeper.jute import write_record
from penstock.zookeeper.multi import write_multi
from penstock.zookeeper.operations import ANY_VERSION, OPEN_ACL, Acl, Operation, Result, Stat
from penstock.zookeeper.paths import path_problem
from penstock.zookeeper.protocol import OnlyPath, Op, PathWatch, request_of
from penstock.zookeeper.session import NO_SESSION, Session

REQUEST_BYTES_MAX = (1 << 20) - 64  # ZooKeeper closes the connection of whoever sends more


class Client:
    """One session. All paths are below `chroot`, for everybody who uses it; `make_chroot` sees to it that it exists."""

    def __init__(self, session: ClientSession, chroot: Chroot) -> None:
        self._session = session
        self._chroot = chroot
        self.acl_of: Callable[[str], tuple[Acl, ...]] = lambda _path: OPEN_ACL
        """What new znodes get whose maker does not say."""

    @classmethod
    async def connect(
        cls,
        world: World,
        servers: Sequence[Address],
        *,
        timeout_ms: int,
        chroot: str = "",
        session: Session = NO_SESSION,
        digest: bytes | None = None,
    ) -> Client:
        """Begin (or go on with) a session, and wait until it is there; SessionExpiredError if it is not any more.

        `servers` names every server of the ensemble; `digest` is "user:password".
        """
        below = Chroot(chroot)
        connection = ClientSession(world, servers, timeout_ms=timeout_ms, chroot=below, session=session, digest=digest)
        try:
            await connection.connected
        except BaseException:
            connection.end(SessionState.CLOSED)
            await connection.stop()
            raise
        return cls(connection, below)

    @property
    def session(self) -> Session:
        return self._session.session

    @property
    def session_id(self) -> int:
        return self._session.session.session_id

    @property
    def timeout_ms(self) -> int:
        """As the service has granted it."""
        return self._session.timeout_ms

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def heard_s(self) -> float:
        """The lease: the session lives at least until this time, of the monotonic clock, plus its timeout."""
        return self._session.heard_s

    @property
    def lease_until_s(self) -> float:
        return -math.inf if self.state in OVER else self.heard_s + self.timeout_ms / 1000

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._session.listeners.append(listener)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        found = await self._look(Op.GET_DATA, path, watch)
        return found.data, found.stat

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        try:
            found = await self._look(Op.EXISTS, path, watch)
        except NoNodeError:
            return None
        stat: Stat = found.stat
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        found = await self._look(Op.GET_CHILDREN2, path, watch)
        return sorted(found.names), found.stat

    async def sync(self, path: str = "/") -> None:
        await self._ask(Op.SYNC, OnlyPath(self._full(path)))

    async def _look(self, op: Op, path: str, watch: Watch | None) -> Any:
        request = PathWatch(self._full(path), watch is not None)
        return await self._ask(op, request, None if watch is None else (path, watch))

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> str:
        created = await self._change(ops.Create(path, data, ephemeral, sequential, acl))
        return self._chroot.own(created.path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat: Stat = (await self._change(ops.SetData(path, data, version))).stat
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._change(ops.Delete(path, version))

    async def _change(self, operation: Operation) -> Any:
        return await self._ask(*request_of(self._moved(operation)))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        body = bytearray()
        write_multi([self._moved(operation) for operation in operations], body)
        results: list[Result] = await self._send(Op.MULTI, body)
        for index, result in enumerate(results):
            if isinstance(result, ops.Failed) and result.code not in (0, RUNTIME_INCONSISTENCY):
                raise error_for(result.code, operation_index=index)
        return [
            result._replace(path=self._chroot.own(result.path)) if isinstance(result, ops.Created) else result
            for result in results
        ]

    async def make_chroot(self) -> None:
        """Create the chroot, and what is above it, where it is missing."""
        parts = self._chroot.path.split("/")[1:]
        for count in range(len(parts)):
            op, request = request_of(ops.Create("/" + "/".join(parts[: count + 1])))
            try:
                await self._ask(op, request)
            except NodeExistsError:
                pass

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def close(self) -> None:
        """End the session: its ephemeral znodes vanish. Without a connection that is left to its timeout."""
        if self.state not in OVER:
            try:
                await asyncio.wait_for(self._session.send(Op.CLOSE, b""), self.timeout_ms / 1000)
            except (CoordinationError, TimeoutError):
                pass  # it ends by itself
            self._session.end(SessionState.CLOSED)
        await self._session.stop()

    def abandon(self) -> None:
        """Let go of the connection and leave the session to itself: somebody else has taken it over, or will end it."""
        self._session.end(SessionState.CLOSED)
        self._session.cancel()

    async def _ask(self, op: Op, request: Any, watch: tuple[str, Watch] | None = None) -> Any:
        body = bytearray()
        write_record(request, body)
        return await self._send(op, body, watch)

    async def _send(self, op: Op, body: bytearray, watch: tuple[str, Watch] | None = None) -> Any:
        if len(body) > REQUEST_BYTES_MAX:
            raise BadArgumentsError(f"a request of {len(body)} bytes is above the limit of {REQUEST_BYTES_MAX}")
        return await self._session.send(op, bytes(body), watch)

    # ── paths ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _full(self, path: str) -> str:
        if (problem := path_problem(path)) is not None:
            raise BadArgumentsError(problem)
        return self._chroot.full(path)

    def _moved(self, operation: Operation) -> Operation:
        sequential = isinstance(operation, ops.Create) and operation.sequential
        self._full(operation.path + "1" if sequential else operation.path)  # as it will be
        moved = msgspec.structs.replace(operation, path=self._chroot.full(operation.path))
        if isinstance(operation, ops.Create) and isinstance(moved, ops.Create) and operation.acl == OPEN_ACL:
            return msgspec.structs.replace(moved, acl=self.acl_of(operation.path))
        return moved
