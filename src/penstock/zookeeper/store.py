"""The znode tree made durable: what the keeper serves, in process or over the network.

A transaction is applied to the tree at once, and its answer leaves when the journal has been synced. **Every answer,
also that of a read, waits until all it has seen is durable**, so that nobody acts on a change that a crash could undo;
watches fire at the same moment, before the answers. Transactions that come while a sync runs share the next one.

A disk without room refuses changes and does not stop the store. Everything that is applied but not durable is taken
back from the tree, so that nobody ever sees it: whoever waits to change something gets a `StorageFullError`, whoever
reads looks again. A snapshot that finds no room is put off, and the journal grows.

When a write or a sync of the journal fails in any other way, nothing is retried: the store has stopped, whoever waits
gets a `ConnectionLossError` (the change may or may not be on disk), and `on_stopped` is called.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.base.world import Clock, Disk, Lock, NoSpaceError
from penstock.zookeeper.errors import ConnectionLossError, CoordinationError, StorageFullError
from penstock.zookeeper.journal import Journal, JournalCorruptError, Recovered
from penstock.zookeeper.operations import (
    CloseSession,
    JournalEntry,
    OpenSession,
    Transaction,
    decode_entries,
    encode_entries,
)
from penstock.zookeeper.tree import Applied, Tree
from penstock.zookeeper.tree_snapshot import decode_tree, encode_tree
from penstock.zookeeper.watches import Fired, Watches

_log = logging.getLogger(__name__)

T = TypeVar("T")

JOURNAL_SIZE_BYTES_MAX = 8 << 20
PUT_OFF_SHARE = 16  # a snapshot without room is tried again when the journal has grown by this part of its size


class Watcher(NamedTuple):
    """Who is told of an event: a callback of one session, for as long as the session lives."""

    session_id: int
    callback: Callable[..., None]  # of the event, or of the event and the number of its transaction
    wants_zxid: bool = False


@dataclass(slots=True)
class _Waiting:
    """An answer, and the events before it, that leave when transaction `zxid` is durable."""

    zxid: int
    fired: list[Fired[Watcher]]
    answer: asyncio.Future[Any]
    value: Any


class Store:
    """One znode tree with its journal and the watches on it. Lives on one event loop."""

    def __init__(self, disk: Disk, clock: Clock, tree: Tree, journal: Journal, lock: Lock) -> None:
        self._disk = disk
        self._clock = clock
        self._journal = journal
        self._lock: Lock | None = lock
        self._unwritten: list[JournalEntry] = []
        self._waiting: deque[_Waiting] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._durable_zxid = tree.last_zxid
        self._put_off_bytes = 0
        self._lacks_space = False
        self.journal_size_bytes_max = JOURNAL_SIZE_BYTES_MAX
        self.tree = tree
        self.watches: Watches[Watcher] = Watches()
        self.failure: Exception | None = None
        self.on_stopped: list[Callable[[Exception], None]] = []

    @classmethod
    def open(cls, disk: Disk, clock: Clock, folder: str) -> Store:
        """Recover the tree from its folder (made if missing); BlockingIOError if another process has it open."""
        _make_folder(disk, folder)
        lock = disk.lock(f"{folder}/lock")
        try:
            recovered = Journal.recover(disk, folder)
            try:
                tree = _rebuilt(recovered)
            except BaseException:
                recovered.journal.close()
                raise
        except BaseException:
            lock.release()
            raise
        if recovered.cut_bytes:
            _log.warning("cut %d bytes of an unfinished write off the journal in %s", recovered.cut_bytes, folder)
        return cls(disk, clock, tree, recovered.journal, lock)

    @property
    def durable_zxid(self) -> int:
        """The newest transaction that a crash cannot undo."""
        return self._durable_zxid

    async def open_session(self, timeout_ms: int, password: bytes = b"") -> int:
        """A new session's id: the number of the transaction that opens it, so never used before."""
        session_id = self.tree.last_zxid + 1
        await self.submit(OpenSession(session_id, timeout_ms, password))
        return session_id

    async def close_session(self, session_id: int) -> None:
        """End a session: its ephemeral znodes and its watches are gone."""
        await self.submit(CloseSession(session_id))
        self.watches.forget(lambda watcher: watcher.session_id == session_id)

    def submit(self, transaction: Transaction) -> asyncio.Future[Applied]:
        """Apply a transaction now; its outcome comes when it is durable. One that fails raises its error."""
        self._require_running()
        zxid, time_ms = self.tree.last_zxid + 1, self._clock.wall_ms()
        applied = self.tree.apply(transaction, zxid, time_ms)
        if applied.failure is not None:
            return self._when_durable(applied.failure, [])
        self._unwritten.append(JournalEntry(zxid, time_ms, transaction))
        return self._when_durable(applied, self.watches.fire(applied.events))

    async def read(self, reading: Callable[[Tree], T]) -> T:
        """What `reading` finds in the tree, once that is durable."""
        return await self.look(reading)

    def look(self, reading: Callable[[Tree], T]) -> asyncio.Future[T]:
        """The same, looking at once: what is submitted after this call is not seen."""
        self._require_running()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._look(reading, answer)
        return answer

    def _look(self, reading: Callable[[Tree], T], answer: asyncio.Future[T]) -> None:
        try:
            found: T | CoordinationError = reading(self.tree)
        except CoordinationError as error:
            found = error
        if self._durable_zxid >= self.tree.last_zxid:
            _settle(answer, found)
            return

        def durable(done: asyncio.Future[None]) -> None:
            error = done.exception()
            if isinstance(error, StorageFullError):
                self._look(reading, answer)  # what it saw was taken back
            else:
                _settle(answer, found if error is None else error)

        self._when_durable(None, []).add_done_callback(durable)

    async def close(self) -> None:
        """Wait for what is under way and let go of the files. Sessions stay as they are."""
        while self._committing is not None:
            await asyncio.wait([self._committing])
        if self._lock is not None:
            self.failure = self.failure or ConnectionLossError("it was closed")
            self._journal.close()
            self._lock.release()
            self._lock = None

    def _require_running(self) -> None:
        if self.failure is not None:
            raise ConnectionLossError(f"the keeper has stopped: {self.failure}")

    def _when_durable(self, value: Any, fired: list[Fired[Watcher]]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(self.tree.last_zxid, fired, answer, value))
        if self._committing is None:
            if self._unwritten:
                self._committing = asyncio.create_task(self._commit())
            else:
                self._deliver()
        return answer

    async def _commit(self) -> None:
        try:
            while self._unwritten:
                await self._write()
                if self._journal.size_bytes > self.journal_size_bytes_max + self._put_off_bytes:
                    await self._take_snapshot()
        except Exception as error:
            self._stop(error)
        finally:
            self._committing = None

    async def _write(self) -> None:
        """Write what was applied so far, with one sync."""
        entries, self._unwritten = self._unwritten, []
        payload = encode_entries(entries)
        try:
            await self._disk.run("sync", lambda: self._journal.append(payload))
        except NoSpaceError as error:
            self._note_space(error)
            self._take_back()
            return
        self._note_space(None)
        self._durable_zxid = entries[-1].zxid
        self._deliver()

    async def _take_snapshot(self) -> None:
        """Start a new journal. What was applied but not yet written is in the snapshot, which makes it durable."""
        snapshot, zxid = encode_tree(self.tree), self.tree.last_zxid
        unwritten, self._unwritten = self._unwritten, []
        try:
            await self._disk.run("sync", lambda: self._journal.rotate(snapshot, zxid))
        except NoSpaceError as error:
            _log.warning("no room for a snapshot of the keeper; its journal goes on: %s", error)
            self._unwritten = unwritten + self._unwritten
            above_bytes = self._journal.size_bytes - self.journal_size_bytes_max
            self._put_off_bytes = above_bytes + self.journal_size_bytes_max // PUT_OFF_SHARE
            return
        self._put_off_bytes = 0
        self._durable_zxid = zxid
        self._deliver()

    def _take_back(self) -> None:
        """Undo all that is not durable, newest first, and refuse those who wait for it: they saw what never was.

        That includes what came while the write was under way, for it was built on what the write should have stored.
        """
        self._unwritten = []
        refused, self._waiting = self._waiting, deque()
        for waiting in reversed(refused):
            if isinstance(waiting.value, Applied):
                self.tree.revert(waiting.value, waiting.zxid - 1)
            self.watches.put_back(waiting.fired)
        assert self.tree.last_zxid == self._durable_zxid
        for waiting in refused:
            _settle(waiting.answer, StorageFullError())

    def _note_space(self, error: NoSpaceError | None) -> None:
        """Say it when the room ends, and when there is room again; not for every write in between."""
        if error is not None and not self._lacks_space:
            _log.error("the keeper has no room; changes are refused until there is: %s", error)
        elif error is None and self._lacks_space:
            _log.warning("the keeper has room again")
        self._lacks_space = error is not None

    def _deliver(self) -> None:
        """Tell the watchers and give the answers that are due, in the order of the transactions.

        Watchers are called by the loop, which does that before it resumes those whose answer is set after.
        """
        loop = asyncio.get_running_loop()
        while self._waiting and self._waiting[0].zxid <= self._durable_zxid:
            waiting = self._waiting.popleft()
            for fired in waiting.fired:
                if fired.watcher.session_id in self.tree.sessions:
                    numbered = (waiting.zxid,) if fired.watcher.wants_zxid else ()
                    loop.call_soon(fired.watcher.callback, fired.event, *numbered)
            _settle(waiting.answer, waiting.value)

    def _stop(self, error: Exception) -> None:
        self.failure = error
        while self._waiting:
            _settle(self._waiting.popleft().answer, ConnectionLossError(f"the keeper has stopped: {error}"))
        for callback in self.on_stopped:
            callback(error)


def _make_folder(disk: Disk, folder: str) -> None:
    """The folder, durable in the one above it, and so on; only before its first use, for a crash may have left part.

    A folder above that we may not read is none that we made.
    """
    disk.make_dirs(folder)
    if any(name.startswith("journal.") for name in disk.list_dir(folder)):
        return
    path = folder
    while path not in ("/", "."):
        path = _folder_of(path)
        try:
            disk.sync_dir(path)
        except PermissionError:
            return


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def _rebuilt(recovered: Recovered) -> Tree:
    try:
        tree = Tree() if recovered.snapshot is None else decode_tree(recovered.snapshot)
        for payload in recovered.payloads:
            for entry in decode_entries(payload):
                _replay(tree, entry)
    except msgspec.DecodeError as error:
        raise JournalCorruptError(f"the keeper's files cannot be read by this release: {error}") from error
    return tree


def _settle(answer: asyncio.Future[Any], value: Any) -> None:
    if answer.done():  # the one who asked was cancelled
        return
    if isinstance(value, CoordinationError):
        answer.set_exception(value)
    else:
        answer.set_result(value)


def _replay(tree: Tree, entry: JournalEntry) -> None:
    if entry.zxid != tree.last_zxid + 1:
        raise JournalCorruptError(f"the journal goes from transaction {tree.last_zxid} to {entry.zxid}")
    applied = tree.apply(entry.transaction, entry.zxid, entry.time_ms)
    if applied.failure is not None:
        raise JournalCorruptError(f"transaction {entry.zxid} of the journal fails: {applied.failure}")
