"""Coordination without a server: sessions of this process on a `Store` of this process, durable in one folder.

The session ends with the process, so whatever sessions a folder still holds when it is opened are of a process that is
gone: they are closed first, and their ephemeral znodes vanish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.base.world import Clock, Disk
from penstock.zookeeper import operations as ops
from penstock.zookeeper.coordination import SessionState, Watch
from penstock.zookeeper.errors import BadArgumentsError, SessionExpiredError, StorageFullError
from penstock.zookeeper.operations import ANY_VERSION, OPEN_ACL, Acl, Operation, Result, Stat
from penstock.zookeeper.paths import path_problem
from penstock.zookeeper.store import Store, Watcher
from penstock.zookeeper.tree import Tree

T = TypeVar("T")

REQUEST_SIZE_BYTES_MAX = (1 << 20) - 1  # as ZooKeeper's default, so that what works here works there
SESSION_TIMEOUT_MS = 30_000  # nobody counts it: a session in this process ends with it


class LocalCoordination:
    """One session on a store in this process."""

    def __init__(self, store: Store, session_id: int) -> None:
        self._store = store
        self._owns_store = False
        self._listeners: list[Callable[[SessionState], None]] = []
        self.session_id = session_id
        self.state = SessionState.CONNECTED
        self._lease_until_s = math.inf  # the session lives as long as this process, and its keeper
        store.on_stopped.append(lambda _error: self._become(SessionState.FAILED))

    @classmethod
    async def open(cls, disk: Disk, clock: Clock, folder: str) -> LocalCoordination:
        """Recover the tree in `folder` and begin a session on it; closing the session closes the folder."""
        store = Store.open(disk, clock, folder)
        try:
            for leftover in sorted(store.tree.sessions):
                await store.close_session(leftover)
            session = await cls.connect(store)
        except BaseException:
            await store.close()
            raise
        session._owns_store = True
        return session

    @classmethod
    async def connect(cls, store: Store) -> LocalCoordination:
        """One more session on a store that is open."""
        return cls(store, await store.open_session(SESSION_TIMEOUT_MS))

    @property
    def timeout_ms(self) -> int:
        return SESSION_TIMEOUT_MS

    @property
    def lease_until_s(self) -> float:
        return self._lease_until_s

    @property
    def keeps_secrets(self) -> bool:
        return True  # nobody else is in this process

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        def reading(tree: Tree) -> tuple[bytes, Stat]:
            found = tree.get(path)
            self._watch_node(path, watch)
            return found

        return await self._read(path, reading)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def reading(tree: Tree) -> Stat | None:
            self._watch_node(path, watch)
            return tree.exists(path)

        return await self._read(path, reading)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        def reading(tree: Tree) -> tuple[list[str], Stat]:
            found = tree.children(path)
            if watch is not None:
                self._store.watches.watch_children(path, Watcher(self.session_id, watch))
            return found

        return await self._read(path, reading)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> str:
        created = (await self.multi([ops.Create(path, data, ephemeral, sequential, acl)]))[0]
        assert isinstance(created, ops.Created)
        return created.path

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        changed = (await self.multi([ops.SetData(path, data, version)]))[0]
        assert isinstance(changed, ops.Changed)
        return changed.stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([ops.Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._require_alive()
        for operation in operations:
            sequential = isinstance(operation, ops.Create) and operation.sequential
            _require_path(operation.path + "1" if sequential else operation.path)
        if (size := ops.size_bytes(list(operations))) > REQUEST_SIZE_BYTES_MAX:
            raise BadArgumentsError(f"a request of {size} bytes is above the limit of {REQUEST_SIZE_BYTES_MAX}")
        applied = await self._store.submit(ops.Write(self.session_id, tuple(operations)))
        return applied.results

    async def sync(self, path: str = "/") -> None:
        await self._read(path, lambda _tree: None)

    async def close(self) -> None:
        try:
            if self.state is SessionState.CONNECTED:
                await self._end(SessionState.CLOSED)
        except StorageFullError:
            if not self._owns_store:
                raise
            # otherwise the session ends with the process, and the next one closes it
        finally:
            if self._owns_store:
                await self._store.close()

    async def expire(self) -> None:
        """End the session as if its client had been silent for too long."""
        await self._end(SessionState.EXPIRED)

    async def _end(self, state: SessionState) -> None:
        self._require_alive()
        self._become(state)
        await self._store.close_session(self.session_id)

    def _become(self, state: SessionState) -> None:
        if self.state is not SessionState.CONNECTED:
            return
        self.state = state
        self._lease_until_s = -math.inf
        for listener in self._listeners:
            listener(state)

    async def _read(self, path: str, reading: Callable[[Tree], T]) -> T:
        self._require_alive()
        _require_path(path)
        return await self._store.read(reading)

    def _watch_node(self, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._store.watches.watch_node(path, Watcher(self.session_id, watch))

    def _require_alive(self) -> None:
        if self.state in (SessionState.CLOSED, SessionState.EXPIRED):
            raise SessionExpiredError(f"the session is {self.state.value}")


def _require_path(path: str) -> None:
    if (problem := path_problem(path)) is not None:
        raise BadArgumentsError(problem)
