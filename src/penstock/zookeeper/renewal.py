"""A coordination that outlives its sessions: when one has expired, the next is opened.

Whoever uses it hears EXPIRED (ephemeral znodes and watches are gone) and later CONNECTED, with another `session_id`:
then it registers and reads anew. In between requests fail with SessionExpiredError.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from penstock.zookeeper.client import Client
from penstock.zookeeper.coordination import SessionState, Watch
from penstock.zookeeper.errors import CoordinationError
from penstock.zookeeper.operations import ANY_VERSION, OPEN_ACL, Acl, Operation, Result, Stat
from penstock.zookeeper.session import Session

logger = logging.getLogger(__name__)

RETRY_S = 0.1
RETRY_S_MAX = 2.0


class RenewedClient:
    """See the head of this file. `on_session` hears of each session before anything is done with it."""

    def __init__(
        self, client: Client, connect: Callable[[], Awaitable[Client]], on_session: Callable[[Session], None]
    ) -> None:
        self._client = client
        self._connect = connect
        self._on_session = on_session
        self._listeners: list[Callable[[SessionState], None]] = []
        self._renewing: asyncio.Task[None] | None = None
        self._is_closed = False
        self.expiries = 0
        self.keeps_secrets = False
        self._attach(client)

    @classmethod
    async def open(
        cls, connect: Callable[[], Awaitable[Client]], on_session: Callable[[Session], None]
    ) -> RenewedClient:
        """The first session; raises what `connect` raises."""
        client = await connect()
        on_session(client.session)
        return cls(client, connect, on_session)

    def _attach(self, client: Client) -> None:
        client.add_listener(lambda state: self._heard(client, state))

    def _heard(self, client: Client, state: SessionState) -> None:
        if client is not self._client or self._is_closed:
            return
        self._tell(state)
        if state is SessionState.EXPIRED:
            self.expiries += 1
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    def _tell(self, state: SessionState) -> None:
        for listener in list(self._listeners):
            listener(state)

    async def _renew(self) -> None:
        delay_s = RETRY_S
        while True:
            try:
                client = await self._connect()
                break
            except (CoordinationError, OSError) as error:
                logger.warning("no new session with the coordination service yet: %s", error)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_S_MAX)
        self._on_session(client.session)
        self._client = client
        self._attach(client)
        logger.info("a new session with the coordination service")
        self._tell(client.state)

    # ── as any coordination ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def session(self) -> Session:
        return self._client.session

    @property
    def session_id(self) -> int:
        return self._client.session_id

    @property
    def state(self) -> SessionState:
        return self._client.state

    @property
    def timeout_ms(self) -> int:
        return self._client.timeout_ms

    @property
    def lease_until_s(self) -> float:
        return self._client.lease_until_s

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return await self._client.get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._client.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        return await self._client.children(path, watch)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> str:
        return await self._client.create(path, data, ephemeral=ephemeral, sequential=sequential, acl=acl)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._client.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._client.delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._client.multi(operations)

    async def sync(self, path: str = "/") -> None:
        await self._client.sync(path)

    async def close(self) -> None:
        self._is_closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        await self._client.close()
