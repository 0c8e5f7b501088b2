"""What a request of one session does to the keeper's store, and how its outcome is written: ZooKeeper's rules.

A request takes effect when it begins; its outcome comes when all it has seen is durable. Reading a request never
allocates more than its frame; what cannot be read raises `MarshallingError` before anything has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.zookeeper import operations as ops
from penstock.zookeeper.access import digest_identity
from penstock.zookeeper.errors import (
    ROLLED_BACK,
    RUNTIME_INCONSISTENCY,
    AuthFailedError,
    BadArgumentsError,
    CoordinationError,
    MarshallingError,
    NoNodeError,
    NoWatcherError,
    UnimplementedError,
)
from penstock.zookeeper.jute import Reader, read_record, write_integer, write_record, write_string
from penstock.zookeeper.multi import READS, WRITES, read_multi, write_multi_results
from penstock.zookeeper.operations import EventType, Identity, WatchEvent
from penstock.zookeeper.protocol import (
    REQUESTS,
    AclStat,
    AuthPacket,
    Children,
    ChildrenStat,
    DataStat,
    Number,
    OnlyPath,
    OnlyStat,
    Op,
    PathStat,
    SetWatches,
    SetWatches2,
    operation_of,
)
from penstock.zookeeper.store import Store, Watcher
from penstock.zookeeper.tree import Applied, Tree

PERSISTENT, RECURSIVE = 0, 1
OF_CHILDREN, OF_DATA, ANY_KIND = 1, 2, 3
WATCHES_MAX = 100_000  # of one client

Build = Callable[[Any, bytearray], None]


class Begun(NamedTuple):
    """A request that has taken effect: its outcome to come, and how that is written."""

    outcome: asyncio.Future[Any]
    build: Build


class KeeperRequests:
    """The requests of one session on one connection; `identities` grows with what the client proves to be."""

    def __init__(self, store: Store, watcher: Watcher, identities: tuple[Identity, ...]) -> None:
        self.identities = identities
        self.watches_left = 0  # how many can be left before it is counted again
        self._store = store
        self._watcher = watcher
        self._session_id = watcher.session_id

    def begin(self, op: Op, reader: Reader) -> Begun:
        """Let a request take effect; a CoordinationError is its answer."""
        if op is Op.MULTI:
            return self._multi(reader)
        if op is Op.MULTI_READ:
            return self._multi_read(reader)
        if op not in REQUESTS:
            raise UnimplementedError(f"{op.name} is not served")
        request = read_record(REQUESTS[op], reader)
        match op:
            case Op.CREATE | Op.CREATE2 | Op.CREATE_CONTAINER | Op.CREATE_TTL:
                return Begun(self._write([operation_of(op, request)]), _result_of(op))
            case Op.DELETE | Op.SET_DATA | Op.SET_ACL | Op.CHECK:
                return Begun(self._write([operation_of(op, request)]), _result_of(op))
            case Op.CLOSE:
                return Begun(self._store.submit(ops.CloseSession(self._session_id)), _nothing)
            case Op.PING:
                return Begun(self._store.look(lambda _tree: None), _nothing)
            case Op.AUTH:
                self._authenticate(request)
                return Begun(self._store.look(lambda _tree: None), _nothing)
            case Op.WHO_AM_I:
                return Begun(self._store.look(lambda _tree: self.identities), _write_identities)
            case Op.SET_WATCHES | Op.SET_WATCHES2:
                return Begun(self._store.look(lambda tree: self._set_watches(request, tree)), _nothing)
            case Op.ADD_WATCH:
                self._require_mode(request.mode, (PERSISTENT, RECURSIVE))
                return Begun(self._store.look(lambda _tree: self._add_watch(request.path, request.mode)), _record)
            case Op.CHECK_WATCHES | Op.REMOVE_WATCHES:
                self._require_mode(request.mode, (OF_CHILDREN, OF_DATA, ANY_KIND))
                return Begun(
                    self._store.look(lambda _tree: self._find_watches(op, request.path, request.mode)), _nothing
                )
            case _:
                return Begun(self._store.look(lambda tree: self._read(op, request, tree)), _record)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, operations: list[ops.Operation]) -> asyncio.Future[Applied]:
        return self._store.submit(ops.Write(self._session_id, tuple(operations), self.identities))

    def _multi(self, reader: Reader) -> Begun:
        asked = read_multi(reader, WRITES)
        kinds = [op for op, _ in asked]
        outcome: asyncio.Future[list[ops.Result]] = asyncio.get_running_loop().create_future()
        operations: list[ops.Operation] = []
        for op, request in asked:
            try:
                operations.append(operation_of(op, request))
            except CoordinationError as error:
                return self._multi_with_bad_operation(kinds, operations, error)

        def done(applied: asyncio.Future[Applied]) -> None:
            error = applied.exception()
            if outcome.done():
                return
            if error is None:
                outcome.set_result(applied.result().results)
            elif isinstance(error, CoordinationError) and error.operation_index is not None:
                outcome.set_result(_failures(len(kinds), error.operation_index, error))
            else:
                outcome.set_exception(error)

        self._write(operations).add_done_callback(done)
        return Begun(outcome, lambda results, out: write_multi_results(kinds, results, out))

    def _multi_with_bad_operation(
        self, kinds: list[Op], before: list[ops.Operation], error: CoordinationError
    ) -> Begun:
        """One operation cannot even be tried: it fails the multi, unless one before it does so first."""

        def judge(tree: Tree) -> list[ops.Result]:
            trial = ops.Write(self._session_id, tuple(before), self.identities)
            applied = tree.apply(trial, tree.last_zxid + 1, 0)
            if applied.failure is not None:
                assert applied.failure.operation_index is not None
                return _failures(len(kinds), applied.failure.operation_index, applied.failure)
            tree.revert(applied, tree.last_zxid - 1)
            return _failures(len(kinds), len(before), error)

        return Begun(self._store.look(judge), lambda results, out: write_multi_results(kinds, results, out))

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, op: Op, request: Any, tree: Tree) -> Any:
        path: str = request.path
        match op:
            case Op.GET_DATA:
                found = DataStat(*tree.get(path, self.identities))
                self._watch_node(path, request.watch)
                return found
            case Op.EXISTS:
                if "\0" in path:
                    raise BadArgumentsError("a path without an end")
                self._watch_node(path, request.watch)
                stat = tree.exists(path)
                if stat is None:
                    raise NoNodeError(f"there is no znode {path}")
                return OnlyStat(stat)
            case Op.GET_CHILDREN | Op.GET_CHILDREN2:
                names, stat = tree.children(path, self.identities)
                if request.watch:
                    self._count_watch()
                    self._store.watches.watch_children(path, self._watcher)
                return Children(names) if op is Op.GET_CHILDREN else ChildrenStat(names, stat)
            case Op.GET_ACL:
                return AclStat(*tree.acl(path, self.identities))
            case Op.SYNC:
                return OnlyPath(path)
            case Op.GET_EPHEMERALS:
                session = tree.sessions.get(self._session_id)
                own = session.ephemerals if session is not None else set()
                return Children(sorted(each for each in own if each.startswith(path.strip())))
            case Op.GET_ALL_CHILDREN_NUMBER:
                tree.get(path, self.identities)
                below = path.rstrip("/") + "/"
                return Number(sum(each.startswith(below) and each != below for each in tree.nodes))
            case _:
                raise UnimplementedError(f"{op.name} is not served")

    def _multi_read(self, reader: Reader) -> Begun:
        asked = read_multi(reader, READS)

        def read_all(tree: Tree) -> list[Any]:
            return [self._read_or_error(op, request, tree) for op, request in asked]

        kinds = [op for op, _ in asked]
        return Begun(self._store.look(read_all), lambda results, out: write_multi_results(kinds, results, out))

    def _read_or_error(self, op: Op, request: Any, tree: Tree) -> Any:
        try:
            return self._read(op, request, tree)
        except CoordinationError as error:
            return ops.Failed(error.code)

    # ── who, and watches ─────────────────────────────────────────────────────────────────────────────────────────

    def _authenticate(self, packet: AuthPacket) -> None:
        if packet.scheme == "ip":  # everybody has shown that already
            return
        if packet.scheme != "digest":
            raise AuthFailedError(f"the scheme {packet.scheme!r} is not served; digest is")
        identity = digest_identity(packet.auth)
        if identity not in self.identities:
            self.identities += (identity,)

    def _watch_node(self, path: str, is_wanted: bool) -> None:
        if is_wanted:
            self._count_watch()
            self._store.watches.watch_node(path, self._watcher)

    def _count_watch(self) -> None:
        """Refuse more watches than a client can need: the memory is ours."""
        if self.watches_left <= 0:
            self.watches_left = WATCHES_MAX - self._store.watches.count(self._watcher)
            if self.watches_left <= 0:
                raise BadArgumentsError(f"more than {WATCHES_MAX} watches")
        self.watches_left -= 1

    def _set_watches(self, request: SetWatches | SetWatches2, tree: Tree) -> list[WatchEvent]:
        """Leave the watches of a client that came again; returns what it has missed, which it is told at once."""
        watches, since = self._store.watches, request.relative_zxid
        missed: list[WatchEvent] = []
        for path in request.data:
            node = tree.nodes.get(path)
            if node is None:
                missed.append(WatchEvent(EventType.DELETED, path))
            elif node.mzxid > since:
                missed.append(WatchEvent(EventType.DATA_CHANGED, path))
            else:
                self._watch_node(path, True)
        for path in request.exists:
            if path in tree.nodes:
                missed.append(WatchEvent(EventType.CREATED, path))
            else:
                self._watch_node(path, True)
        for path in request.children:
            node = tree.nodes.get(path)
            if node is None:
                missed.append(WatchEvent(EventType.DELETED, path))
            elif node.pzxid > since:
                missed.append(WatchEvent(EventType.CHILDREN_CHANGED, path))
            else:
                self._count_watch()
                watches.watch_children(path, self._watcher)
        if isinstance(request, SetWatches2):
            for path in request.persistent:
                self._add_watch(path, PERSISTENT)
            for path in request.recursive:
                self._add_watch(path, RECURSIVE)
        return missed

    @staticmethod
    def _require_mode(mode: int, known: tuple[int, ...]) -> None:
        if mode not in known:
            raise MarshallingError(f"there are no watches of kind {mode}")

    def _add_watch(self, path: str, mode: int) -> Number:
        self._count_watch()
        self._store.watches.watch_always(path, self._watcher, is_recursive=mode == RECURSIVE)
        return Number(0)

    def _find_watches(self, op: Op, path: str, kind: int) -> None:
        """CHECK_WATCHES and REMOVE_WATCHES: an error if there are none of this kind."""
        of_node, of_children = kind in (OF_DATA, ANY_KIND), kind in (OF_CHILDREN, ANY_KIND)
        find = self._store.watches.waits if op is Op.CHECK_WATCHES else self._store.watches.remove
        if not find(path, self._watcher, of_node=of_node, of_children=of_children):
            raise NoWatcherError(f"nobody waits at {path}")


def _nothing(_done: Any, _out: bytearray) -> None:
    """The answer has no content."""


def _record(record: Any, out: bytearray) -> None:
    write_record(record, out)


def _write_identities(identities: tuple[Identity, ...], out: bytearray) -> None:
    """WHO_AM_I tells names, and of digests no more than the user's."""
    write_integer(len(identities), out)
    for scheme, name in identities:
        write_string(scheme, out)
        write_string(name.partition(":")[0] if scheme == "digest" else name, out)


def _result_of(op: Op) -> Build:
    def write_result(applied: Applied, out: bytearray) -> None:
        match applied.results[0]:
            case ops.Created(path, stat):
                write_record(OnlyPath(path) if op is Op.CREATE or stat is None else PathStat(path, stat), out)
            case ops.Changed(stat):
                write_record(OnlyStat(stat), out)

    return write_result


def _failures(count: int, index: int, error: CoordinationError) -> list[ops.Result]:
    before: list[ops.Result] = [ops.Failed(ROLLED_BACK)] * index
    after: list[ops.Result] = [ops.Failed(RUNTIME_INCONSISTENCY)] * (count - index - 1)
    return [*before, ops.Failed(error.code), *after]
