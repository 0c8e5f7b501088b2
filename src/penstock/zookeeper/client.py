"""A session with ZooKeeper, or with our keeper, over the network.

The session outlives its connections: when one breaks, the client goes on to the next server and asks for the same
session again, with its watches, until the service says that it has expired. Requests that were on their way when the
connection broke fail with `ConnectionLossError`: nobody knows whether they took effect. Requests that are made while
there is no connection wait for one.

**The lease.** `heard_s` is when the last request that has been answered was *sent*: the service has heard of us then or
later, so the session lives at least until that time plus its timeout. Probes keep it fresh.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.base.world import Address, World
from penstock.zookeeper import operations as ops
from penstock.zookeeper.client_watches import ClientWatches, WatchKind
from penstock.zookeeper.coordination import SessionState, Watch
from penstock.zookeeper.errors import (
    AuthFailedError,
    ConnectionLossError,
    CoordinationError,
    NoNodeError,
    SessionExpiredError,
    error_for,
)
from penstock.zookeeper.frames import FrameStream
from penstock.zookeeper.jute import Reader, read_record, write_boolean, write_record
from penstock.zookeeper.operations import ANY_VERSION, OPEN_ACL, Acl, EventType, Operation, Result, Stat, WatchEvent
from penstock.zookeeper.protocol import (
    ANSWERS,
    AUTH_XID,
    NOTIFICATION_XID,
    PING_XID,
    SET_WATCHES_XID,
    AuthPacket,
    ConnectRequest,
    ConnectResponse,
    Event,
    Nothing,
    OnlyPath,
    Op,
    PathWatch,
    ReplyHeader,
    RequestHeader,
    read_multi_results,
    request_of,
    sized,
    write_multi,
)

logger = logging.getLogger(__name__)

FRAME_BYTES_MAX = 64 << 20  # a list of very many children may be long
PROBES_PER_TIMEOUT = 6
SILENCE_SHARE = 2 / 3  # of the timeout, after which a silent server is left for another
RECONNECT_S = 0.05
RECONNECT_S_MAX = 1.0
NO_SESSION_PASSWORD = bytes(16)


class Session(NamedTuple):
    """What it takes to go on with a session, or to end it: a secret."""

    session_id: int
    password: bytes

    def __repr__(self) -> str:
        return f"Session({self.session_id:#x})"


NO_SESSION = Session(0, NO_SESSION_PASSWORD)


class _Request:
    """One request, from its making until its answer."""

    __slots__ = ("answer", "body", "op", "sent_s", "watch", "xid")

    def __init__(self, op: Op, body: bytes, answer: asyncio.Future[Any], watch: tuple[str, Watch] | None) -> None:
        self.op = op
        self.body = body
        self.answer = answer
        self.watch = watch
        self.xid = 0
        self.sent_s = 0.0


class Client:
    """One session; see the head of this file. `paths` are below `chroot` for everybody who uses it."""

    def __init__(
        self,
        world: World,
        servers: Sequence[Address],
        *,
        timeout_ms: int,
        chroot: str = "",
        session: Session = NO_SESSION,
        digest: bytes | None = None,
    ) -> None:
        self._world = world
        self._servers = list(servers)
        self._next_server = world.random.randrange(len(self._servers))
        self._chroot = chroot.rstrip("/")
        self._asked_timeout_ms = timeout_ms
        self._digest = digest
        self.timeout_ms = timeout_ms
        self.session = session
        self.state = SessionState.SUSPENDED
        self.heard_s = -1.0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._frames: FrameStream | None = None
        self._waiting: deque[_Request] = deque()  # made while there was no connection
        self._sent: deque[_Request] = deque()
        self._xid = 0
        self._last_zxid = 0
        self._watches = ClientWatches()
        self._received_s = 0.0
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._broken: asyncio.Future[str] | None = None
        self._running = asyncio.get_running_loop().create_task(self._run())
        self._running.add_done_callback(self._stopped)

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
        """Begin (or go on with) a session, and wait until it is there; SessionExpiredError if it is not any more."""
        client = cls(world, servers, timeout_ms=timeout_ms, chroot=chroot, session=session, digest=digest)
        try:
            await client._connected
        except BaseException:
            client._running.cancel()
            raise
        return client

    @property
    def session_id(self) -> int:
        return self.session.session_id

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        found = await self._ask(Op.GET_DATA, self._path_watch(path, watch), path, watch)
        return found.data, found.stat

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        try:
            found = await self._ask(Op.EXISTS, self._path_watch(path, watch), path, watch)
        except NoNodeError:
            return None
        stat: Stat = found.stat
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        found = await self._ask(Op.GET_CHILDREN2, self._path_watch(path, watch), path, watch)
        return sorted(found.names), found.stat

    async def sync(self, path: str = "/") -> None:
        await self._ask(Op.SYNC, OnlyPath(self._full(path)))

    def _path_watch(self, path: str, watch: Watch | None) -> PathWatch:
        return PathWatch(self._full(path), watch is not None)

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
        op, request = request_of(ops.Create(self._full(path), data, ephemeral, sequential, acl))
        return self._own((await self._ask(op, request)).path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        op, request = request_of(ops.SetData(self._full(path), data, version))
        stat: Stat = (await self._ask(op, request)).stat
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        op, request = request_of(ops.Delete(self._full(path), version))
        await self._ask(op, request)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        body = bytearray()
        write_multi([_moved(operation, self._full(operation.path)) for operation in operations], body)
        results: list[Result] = await self._send(Op.MULTI, bytes(body))
        for index, result in enumerate(results):
            if isinstance(result, ops.Failed) and result.code and result.code != -2:
                raise error_for(result.code, operation_index=index)
        return [
            ops.Created(self._own(result.path), result.stat) if isinstance(result, ops.Created) else result
            for result in results
        ]

    async def close(self) -> None:
        """End the session: its ephemeral znodes vanish."""
        if self.state not in (SessionState.CLOSED, SessionState.EXPIRED):
            try:
                await asyncio.wait_for(self._send(Op.CLOSE, b""), self.timeout_ms / 1000)
            except (CoordinationError, TimeoutError):
                pass  # it ends by itself
            self._end(SessionState.CLOSED)
        await asyncio.gather(self._running, return_exceptions=True)

    def abandon(self) -> None:
        """Let go of the connection and leave the session to itself: somebody else has taken it over, or will end it."""
        self._end(SessionState.CLOSED)

    # ── requests and answers ─────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, op: Op, request: Any, path: str = "", watch: Watch | None = None) -> Any:
        body = bytearray()
        write_record(request, body)
        return await self._send(op, bytes(body), None if watch is None else (path, watch))

    def _send(self, op: Op, body: bytes, watch: tuple[str, Watch] | None = None) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.state in (SessionState.CLOSED, SessionState.EXPIRED, SessionState.FAILED):
            answer.set_exception(SessionExpiredError(f"the session is {self.state.value}"))
            return answer
        request = _Request(op, body, answer, watch)
        if self.state is SessionState.CONNECTED:
            self._put(request)
        else:
            self._waiting.append(request)
        return answer

    def _put(self, request: _Request, xid: int | None = None) -> None:
        """Put a request on the connection."""
        assert self._frames is not None
        if xid is None:
            self._xid = xid = self._xid % 0x7FFFFFFF + 1
        request.xid = xid
        request.sent_s = self._world.clock.monotonic()
        self._sent.append(request)
        out = bytearray(4)
        write_record(RequestHeader(xid, request.op), out)
        out += request.body
        self._frames.send(sized(out))

    def _take(self, data: bytes) -> None:
        self._received_s = self._world.clock.monotonic()
        reader = Reader(data)
        try:
            header: ReplyHeader = read_record(ReplyHeader, reader)
            if header.xid == NOTIFICATION_XID:
                event: Event = read_record(Event, reader)
                self._watches.fire(WatchEvent(EventType(event.type), self._own(event.path)))
                return
            request = self._sent.popleft()
            if request.xid != header.xid:
                raise ConnectionLossError(f"answer {header.xid} came where {request.xid} was due")
            self.heard_s = max(self.heard_s, request.sent_s)
            self._last_zxid = max(self._last_zxid, header.zxid)
            self._settle(request, header, reader)
        except (CoordinationError, ValueError, IndexError) as error:
            assert self._frames is not None
            self._frames.end(f"an answer that cannot be read: {error}")

    def _settle(self, request: _Request, header: ReplyHeader, reader: Reader) -> None:
        error = error_for(header.error) if header.error else None
        if request.watch is not None and (error is None or request.op is Op.EXISTS):
            kind = _watch_kind(request.op, is_there=error is None)
            self._watches.add(kind, *request.watch)
        if request.answer.done():
            return
        if request.op is Op.MULTI and not reader.is_at_end:
            request.answer.set_result(read_multi_results(reader))
        elif error is not None:
            request.answer.set_exception(error)
        else:
            record = ANSWERS.get(request.op, Nothing)
            request.answer.set_result(read_record(record, reader))

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        """Keep a connection while the session lives."""
        delay_s = RECONNECT_S
        while self.state not in (SessionState.CLOSED, SessionState.EXPIRED, SessionState.FAILED):
            try:
                async with asyncio.timeout(self.timeout_ms / 1000 * SILENCE_SHARE):
                    await self._open_connection()
            except OSError as error:  # a timeout too
                logger.debug("no connection to the coordination service: %s", error)
                self._drop("it could not be reached")
                await asyncio.sleep(delay_s * (0.5 + self._world.random.random()))
                delay_s = min(2 * delay_s, RECONNECT_S_MAX)
                continue
            if self.state is not SessionState.CONNECTED:
                continue
            delay_s = RECONNECT_S
            probing = asyncio.get_running_loop().create_task(self._probe())
            assert self._broken is not None
            reason = await self._broken
            probing.cancel()
            self._drop(reason)

    def _stopped(self, running: asyncio.Task[None]) -> None:
        if not running.cancelled() and running.exception() is not None:
            logger.error("the session with the coordination service failed", exc_info=running.exception())
        self._end(SessionState.FAILED)

    async def _open_connection(self) -> None:
        address = self._servers[self._next_server]
        self._next_server = (self._next_server + 1) % len(self._servers)
        stream = await self._world.network.connect(address.host, address.port)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_frame(data: bytes) -> None:
            if not answered.done():
                answered.set_result(data)
            else:
                self._take(data)

        def on_end(reason: str) -> None:
            if not answered.done():
                answered.set_exception(ConnectionResetError(reason))
                answered.exception()
            if not broken.done():
                broken.set_result(reason)

        frames = FrameStream(stream, on_frame, on_end, frame_bytes_max=FRAME_BYTES_MAX)
        self._frames, self._broken = frames, broken
        sent_s = self._world.clock.monotonic()
        frames.send(self._connect_frame())
        try:
            response: ConnectResponse = read_record(ConnectResponse, Reader(await answered))
        except CoordinationError as error:
            raise ConnectionResetError(f"not an answer of a coordination service: {error}") from error
        self._begin(response, sent_s)

    def _connect_frame(self) -> bytearray:
        request = ConnectRequest(
            0, self._last_zxid, self._asked_timeout_ms, self.session.session_id, self.session.password
        )
        out = bytearray(4)
        write_record(request, out)
        write_boolean(False, out)
        return sized(out)

    def _begin(self, response: ConnectResponse, sent_s: float) -> None:
        """The service has answered: the session goes on, or is over."""
        if response.timeout_ms <= 0:
            self._end(SessionState.EXPIRED)
            return
        self.session = Session(response.session_id, response.password)
        self.timeout_ms = response.timeout_ms
        self.heard_s = max(self.heard_s, sent_s)
        self._received_s = self._world.clock.monotonic()
        if self._digest is not None:
            body = bytearray()
            write_record(AuthPacket(0, "digest", self._digest), body)
            self._put(_Request(Op.AUTH, bytes(body), self._authenticated(), None), AUTH_XID)
        lost = self._watches.to_set_again(self._full, self._last_zxid)
        if lost is not None:
            body = bytearray()
            write_record(lost, body)
            self._put(_Request(Op.SET_WATCHES, bytes(body), _ignored(), None), SET_WATCHES_XID)
        while self._waiting:
            self._put(self._waiting.popleft())
        if not self._connected.done():
            self._connected.set_result(None)
        self._become(SessionState.CONNECTED)

    def _authenticated(self) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(outcome: asyncio.Future[Any]) -> None:
            if not outcome.cancelled() and isinstance(outcome.exception(), AuthFailedError):
                logger.error("the coordination service refuses our name and password")
                self._end(SessionState.FAILED)

        answer.add_done_callback(done)
        return answer

    async def _probe(self) -> None:
        """Keep the lease fresh, and leave a server that says nothing."""
        period_s = self.timeout_ms / 1000 / PROBES_PER_TIMEOUT
        while True:
            await asyncio.sleep(period_s)
            frames = self._frames
            assert frames is not None
            if (
                self._sent
                and self._world.clock.monotonic() - self._received_s > PROBES_PER_TIMEOUT * SILENCE_SHARE * period_s
            ):
                frames.end("the server is silent")
                return
            self._put(_Request(Op.PING, b"", _ignored(), None), PING_XID)

    def _drop(self, reason: str) -> None:
        """The connection is over; what was on its way is lost."""
        if self._frames is not None:
            self._frames.end(reason)
            self._frames = None
        lost, self._sent = self._sent, deque()
        if self.state is SessionState.CONNECTED:
            logger.info("the connection to the coordination service is lost: %s", reason)
            self._become(SessionState.SUSPENDED)
        for request in lost:
            if not request.answer.done():
                request.answer.set_exception(ConnectionLossError(reason))

    def _end(self, state: SessionState) -> None:
        """The session is over."""
        if self.state in (SessionState.CLOSED, SessionState.EXPIRED, SessionState.FAILED):
            return
        self._become(state)
        self._watches.clear()
        if self._frames is not None:
            self._frames.end(state.value)
        for request in [*self._sent, *self._waiting]:
            if not request.answer.done():
                request.answer.set_exception(SessionExpiredError(f"the session is {state.value}"))
        self._sent.clear()
        self._waiting.clear()
        if not self._connected.done():
            self._connected.set_exception(SessionExpiredError(f"the session is {state.value}"))

    def _become(self, state: SessionState) -> None:
        if self.state is not state:
            self.state = state
            for listener in list(self._listeners):
                listener(state)

    # ── paths ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _full(self, path: str) -> str:
        return path if not self._chroot else self._chroot + (path if path != "/" else "")

    def _own(self, path: str) -> str:
        return path[len(self._chroot) :] or "/" if self._chroot else path


def _moved(operation: Operation, path: str) -> Operation:
    match operation:
        case ops.Create():
            return ops.Create(path, operation.data, operation.ephemeral, operation.sequential, operation.acl)
        case ops.Delete():
            return ops.Delete(path, operation.version)
        case ops.SetData():
            return ops.SetData(path, operation.data, operation.version)
        case ops.SetAcl():
            return ops.SetAcl(path, operation.acl, operation.version)
        case ops.Check():
            return ops.Check(path, operation.version)


def _watch_kind(op: Op, *, is_there: bool) -> WatchKind:
    if op is Op.GET_CHILDREN2:
        return WatchKind.CHILDREN
    return WatchKind.DATA if is_there else WatchKind.EXISTS


def _ignored() -> asyncio.Future[Any]:
    """The answer to something that nobody waits for."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    return answer
