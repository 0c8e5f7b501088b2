"""One client of the keeper: its requests, in order, and their answers, in the same order.

A request takes effect when it arrives. Its answer waits for the disk, and behind the answers before it; events leave
before every answer that could show what they tell, because the store hands them out first.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from hashlib import sha1
from typing import Any, Protocol

from penstock.base.world import Stream
from penstock.zookeeper import operations as ops
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
from penstock.zookeeper.frames import FrameStream
from penstock.zookeeper.jute import Reader, read_record, write_record
from penstock.zookeeper.operations import EventType, Identity, WatchEvent
from penstock.zookeeper.protocol import (
    CONNECTED_STATE,
    NOTIFICATION_XID,
    REQUESTS,
    AclStat,
    AuthPacket,
    Children,
    ChildrenStat,
    ConnectRequest,
    ConnectResponse,
    DataStat,
    Event,
    Number,
    OnlyPath,
    OnlyStat,
    Op,
    PathStat,
    ReplyHeader,
    RequestHeader,
    SetWatches,
    SetWatches2,
    connect_response_frame,
    frame,
    operation_of,
    read_multi,
    sized,
    write_multi_results,
)
from penstock.zookeeper.store import Store, Watcher
from penstock.zookeeper.tree import Applied, Tree

logger = logging.getLogger(__name__)

FRAME_BYTES_MAX = (1 << 20) - 1  # as ZooKeeper's default
PERSISTENT, RECURSIVE = 0, 1
OF_CHILDREN, OF_DATA, ANY_KIND = 1, 2, 3


class Server(Protocol):
    """What a connection asks of the keeper it belongs to."""

    store: Store

    async def begin(self, connection: KeeperConnection, request: ConnectRequest) -> ConnectResponse: ...

    def heard_of(self, session_id: int) -> None: ...

    def ended(self, connection: KeeperConnection) -> None: ...

    def four_letters(self, word: bytes) -> bytes | None: ...


class _Answer:
    """What is to be sent when `outcome` is there and it is its turn."""

    __slots__ = ("build", "op", "outcome", "xid")

    def __init__(self, xid: int, op: Op, outcome: asyncio.Future[Any], build: Callable[[Any, bytearray], None]) -> None:
        self.xid = xid
        self.op = op
        self.outcome = outcome
        self.build = build


class KeeperConnection:
    """See the head of this file."""

    def __init__(self, server: Server, stream: Stream) -> None:
        self.session_id = 0
        self.identities: tuple[Identity, ...] = ()
        self._server = server
        self._store = server.store
        self._is_connected = False
        self._early: list[bytes] = []  # frames that came before the session was there
        self._connecting: asyncio.Task[None] | None = None
        self._answers: deque[_Answer] = deque()
        self._frames = FrameStream(
            stream,
            self._take,
            self._over,
            frame_bytes_max=FRAME_BYTES_MAX,
            four_letters=server.four_letters,
        )

    def end(self, reason: str) -> None:
        self._frames.end(reason)

    def _over(self, reason: str) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self._server.ended(self)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, data: bytes) -> None:
        try:
            if self._is_connected:
                self._request(data)
            elif self._connecting is not None:
                self._early.append(data)
            else:
                self._connect(data)
        except MarshallingError as error:
            self.end(f"a request that cannot be read: {error}")
        except CoordinationError as error:  # the store has stopped
            self.end(str(error))

    def _connect(self, data: bytes) -> None:
        reader = Reader(data)
        request: ConnectRequest = read_record(ConnectRequest, reader)
        with_read_only = not reader.is_at_end
        if request.last_zxid_seen > self._store.tree.last_zxid:
            self.end("the client has seen a later state than this keeper has")
            return

        async def connect() -> None:
            try:
                response = await self._server.begin(self, request)
            except CoordinationError as error:
                self.end(str(error))
                return
            self.session_id = response.session_id
            self._is_connected = response.timeout_ms > 0
            self._frames.send(connect_response_frame(response, with_read_only=with_read_only))
            if not self._is_connected:
                self.end("the session has expired")
            early, self._early = self._early, []
            for frame_data in early:
                self._take(frame_data)

        self._connecting = asyncio.get_running_loop().create_task(connect())

    def _request(self, data: bytes) -> None:
        reader = Reader(data)
        header: RequestHeader = read_record(RequestHeader, reader)
        self._server.heard_of(self.session_id)
        try:
            op = Op(header.type)
        except ValueError:
            self._answer_error(header.xid, UnimplementedError(f"operation {header.type} is not served"))
            return
        try:
            outcome, build = self._begin(op, reader)
        except MarshallingError:
            raise
        except CoordinationError as error:
            self._answer_error(header.xid, error)
            return
        self._answers.append(_Answer(header.xid, op, outcome, build))
        outcome.add_done_callback(lambda _done: self._send_ready())

    def _answer_error(self, xid: int, error: CoordinationError) -> None:
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        outcome.set_exception(error)
        outcome.exception()
        self._answers.append(_Answer(xid, Op.ERROR, outcome, _nothing))
        self._send_ready()

    def _begin(self, op: Op, reader: Reader) -> tuple[asyncio.Future[Any], Callable[[Any, bytearray], None]]:
        """Let a request take effect: its outcome to come, and how that is written."""
        if op is Op.MULTI:
            return self._multi(reader)
        if op not in REQUESTS:
            raise UnimplementedError(f"{op.name} is not served")
        request = read_record(REQUESTS[op], reader)
        match op:
            case Op.CREATE | Op.CREATE2 | Op.DELETE | Op.SET_DATA | Op.SET_ACL | Op.CHECK:
                return self._write([operation_of(op, request)]), lambda done, out: _write_result(op, done, out)
            case Op.CLOSE:
                return asyncio.ensure_future(self._store.close_session(self.session_id)), _nothing
            case Op.PING:
                return self._store.look(lambda _tree: None), _nothing
            case Op.AUTH:
                return self._authenticate(request), _nothing
            case Op.SET_WATCHES | Op.SET_WATCHES2:
                return self._store.look(lambda tree: self._set_watches(request, tree)), _nothing
            case Op.ADD_WATCH:
                return self._store.look(lambda _tree: self._add_watch(request.path, request.mode)), _record
            case Op.CHECK_WATCHES | Op.REMOVE_WATCHES:
                return self._store.look(lambda _tree: self._find_watches(op, request.path, request.mode)), _nothing
            case _:
                return self._store.look(lambda tree: self._read(op, request, tree)), _record

    def _write(self, operations: list[ops.Operation]) -> asyncio.Future[Applied]:
        return self._store.submit(ops.Write(self.session_id, tuple(operations), self.identities))

    def _multi(self, reader: Reader) -> tuple[asyncio.Future[Any], Callable[[Any, bytearray], None]]:
        asked = read_multi(reader)
        kinds = [op for op, _ in asked]
        operations = [operation_of(op, request) for op, request in asked]
        outcome: asyncio.Future[list[ops.Result]] = asyncio.get_running_loop().create_future()

        def done(applied: asyncio.Future[Applied]) -> None:
            error = applied.exception()
            if outcome.done():
                return
            if error is None:
                outcome.set_result(applied.result().results)
            elif isinstance(error, CoordinationError) and error.operation_index is not None:
                outcome.set_result(_failures(len(operations), error))
            else:
                outcome.set_exception(error)

        self._write(operations).add_done_callback(done)
        return outcome, lambda results, out: write_multi_results(kinds, results, out)

    def _read(self, op: Op, request: Any, tree: Tree) -> Any:
        path: str = request.path
        match op:
            case Op.GET_DATA:
                found = DataStat(*tree.get(path, self.identities))
                self._watch_node(path, request.watch)
                return found
            case Op.EXISTS:
                self._watch_node(path, request.watch)
                stat = tree.exists(path)
                if stat is None:
                    raise NoNodeError(f"there is no znode {path}")
                return OnlyStat(stat)
            case Op.GET_CHILDREN | Op.GET_CHILDREN2:
                names, stat = tree.children(path, self.identities)
                if request.watch:
                    self._store.watches.watch_children(path, self._watcher)
                return Children(names) if op is Op.GET_CHILDREN else ChildrenStat(names, stat)
            case Op.GET_ACL:
                return AclStat(*tree.acl(path, self.identities))
            case Op.SYNC:
                return OnlyPath(path)
            case Op.GET_EPHEMERALS:
                own = tree.sessions[self.session_id].ephemerals
                return Children(sorted(each for each in own if each.startswith(path)))
            case Op.GET_ALL_CHILDREN_NUMBER:
                tree.get(path, self.identities)
                below = path.rstrip("/") + "/"
                return Number(sum(each.startswith(below) and each != below for each in tree.nodes))
            case _:
                raise UnimplementedError(f"{op.name} is not served")

    # ── who, and watches ─────────────────────────────────────────────────────────────────────────────────────────

    def _authenticate(self, packet: AuthPacket) -> asyncio.Future[None]:
        if packet.scheme != "digest" or b":" not in packet.auth:
            raise AuthFailedError(f"the scheme {packet.scheme!r} is not served; digest is")
        identity = digest_identity(packet.auth)
        if identity not in self.identities:
            self.identities += (identity,)
        return self._store.look(lambda _tree: None)

    @property
    def _watcher(self) -> Watcher:
        return Watcher(self.session_id, self.tell)

    def _watch_node(self, path: str, is_wanted: bool) -> None:
        if is_wanted:
            self._store.watches.watch_node(path, self._watcher)

    def tell(self, event: WatchEvent) -> None:
        """Something happened to a znode that this client watches."""
        header = ReplyHeader(NOTIFICATION_XID, -1, 0)
        self._frames.send(frame(header, Event(event.type, CONNECTED_STATE, event.path)))

    def _set_watches(self, request: SetWatches | SetWatches2, tree: Tree) -> None:
        """Leave the watches of a client that came again; what it has missed is told at once."""
        watches, since = self._store.watches, request.relative_zxid
        for path in request.data:
            node = tree.nodes.get(path)
            if node is None:
                self.tell(WatchEvent(EventType.DELETED, path))
            elif node.mzxid > since:
                self.tell(WatchEvent(EventType.DATA_CHANGED, path))
            else:
                watches.watch_node(path, self._watcher)
        for path in request.exists:
            if path in tree.nodes:
                self.tell(WatchEvent(EventType.CREATED, path))
            else:
                watches.watch_node(path, self._watcher)
        for path in request.children:
            node = tree.nodes.get(path)
            if node is None:
                self.tell(WatchEvent(EventType.DELETED, path))
            elif node.pzxid > since:
                self.tell(WatchEvent(EventType.CHILDREN_CHANGED, path))
            else:
                watches.watch_children(path, self._watcher)
        if isinstance(request, SetWatches2):
            for path in request.persistent:
                watches.watch_always(path, self._watcher, is_recursive=False)
            for path in request.recursive:
                watches.watch_always(path, self._watcher, is_recursive=True)

    def _add_watch(self, path: str, mode: int) -> Number:
        if mode not in (PERSISTENT, RECURSIVE):
            raise BadArgumentsError(f"there is no watch of mode {mode}")
        self._store.watches.watch_always(path, self._watcher, is_recursive=mode == RECURSIVE)
        return Number(0)

    def _find_watches(self, op: Op, path: str, kind: int) -> None:
        """CHECK_WATCHES and REMOVE_WATCHES: an error if there are none of this kind."""
        if kind not in (ANY_KIND, OF_CHILDREN, OF_DATA):
            raise BadArgumentsError(f"there is no kind {kind} of watches")
        of_node, of_children = kind in (OF_DATA, ANY_KIND), kind in (OF_CHILDREN, ANY_KIND)
        watches = self._store.watches
        if op is Op.CHECK_WATCHES:
            found = watches.waits(path, self._watcher, of_node=of_node, of_children=of_children)
        else:
            found = watches.remove(
                path, self._watcher, of_node=of_node, of_children=of_children, always=kind == ANY_KIND
            )
        if not found:
            raise NoWatcherError(f"nobody waits at {path}")

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _send_ready(self) -> None:
        while self._answers and self._answers[0].outcome.done():
            answer = self._answers.popleft()
            self._send(answer)
            if answer.op is Op.CLOSE:
                self.end("closed by its client")
                return

    def _send(self, answer: _Answer) -> None:
        out = bytearray(4)
        error = answer.outcome.exception()
        zxid = self._store.tree.last_zxid
        if isinstance(error, CoordinationError):
            write_record(ReplyHeader(answer.xid, zxid, error.code), out)
        elif error is not None:
            logger.error("a request of session %#x failed", self.session_id, exc_info=error)
            self.end("a request failed")
            return
        else:
            write_record(ReplyHeader(answer.xid, zxid, 0), out)
            answer.build(answer.outcome.result(), out)
        self._frames.send(sized(out))
        if isinstance(error, AuthFailedError):
            self.end("authentication failed")


def digest_identity(user_and_password: bytes) -> Identity:
    """Who is meant by "user:password"; the password is not kept."""
    user = user_and_password.partition(b":")[0].decode("utf-8", "replace")
    return Identity("digest", f"{user}:{b64encode(sha1(user_and_password).digest()).decode()}")


def _nothing(_done: Any, _out: bytearray) -> None:
    """The answer has no content."""


def _record(record: Any, out: bytearray) -> None:
    write_record(record, out)


def _write_result(op: Op, applied: Applied, out: bytearray) -> None:
    match applied.results[0]:
        case ops.Created(path, stat):
            write_record(PathStat(path, stat) if op is Op.CREATE2 else OnlyPath(path), out)
        case ops.Changed(stat):
            write_record(OnlyStat(stat), out)


def _failures(count: int, error: CoordinationError) -> list[ops.Result]:
    assert error.operation_index is not None
    before: list[ops.Result] = [ops.Failed(ROLLED_BACK)] * error.operation_index
    after: list[ops.Result] = [ops.Failed(RUNTIME_INCONSISTENCY)] * (count - error.operation_index - 1)
    return [*before, ops.Failed(error.code), *after]
