"""The session of a client and the connection it has at the moment: requests out, answers in, and the lease.

The session outlives its connections: when one breaks, it goes on to the next server and asks for the same session
again, with its watches, until the service says that it has expired. Requests that were on their way when the connection
broke fail with `ConnectionLossError`: nobody knows whether they took effect. Requests that are made while there is no
connection wait for one.

**The lease.** The service has surely heard of us at `heard_s` or later, so that the session lives at least until that
time plus its timeout. With one server that is when the last request that has been answered was *sent*; pings keep it
fresh. In an ensemble the server that answers a ping need not be in touch with the leader, who counts the sessions. So
there the probe is a `sync`, which only the leader can answer, and a third of the timeout is taken off: the leader hears
of pings with a delay of half a tick, and a leader that was voted out notices it within a tick and a half. This is
enough where the timeout is at least five ticks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.base.world import Address, World
from penstock.zookeeper.client_watches import Chroot, ClientWatches, WatchKind
from penstock.zookeeper.coordination import SessionState, Watch
from penstock.zookeeper.errors import (
    AuthFailedError,
    ConnectionLossError,
    CoordinationError,
    SessionExpiredError,
    error_for,
)
from penstock.zookeeper.frames import FrameStream
from penstock.zookeeper.jute import Reader, read_record, write_boolean, write_record
from penstock.zookeeper.multi import read_multi_results
from penstock.zookeeper.operations import EventType, WatchEvent
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
    ReplyHeader,
    RequestHeader,
    sized,
)
from penstock.zookeeper.session import Session

logger = logging.getLogger(__name__)

FRAME_BYTES_MAX = 64 << 20  # a list of very many children may be long
RECONNECT_S = 0.05
RECONNECT_S_MAX = 1.0
EVENT_TYPES = frozenset(EventType)
OVER = (SessionState.CLOSED, SessionState.EXPIRED, SessionState.FAILED)


class Pace(NamedTuple):
    """How often the service is probed, when it is silent for too long, and what the lease leaves off: parts of the
    timeout."""

    probe: float
    silence: float
    margin: float


ONE_SERVER = Pace(probe=1 / 6, silence=2 / 3, margin=0.0)
ENSEMBLE = Pace(probe=1 / 12, silence=1 / 3, margin=1 / 3)


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


class ClientSession:
    """See the head of this file."""

    def __init__(
        self,
        world: World,
        servers: Sequence[Address],
        *,
        timeout_ms: int,
        chroot: Chroot,
        session: Session,
        digest: bytes | None,
    ) -> None:
        self._world = world
        self._servers = list(servers)
        self._next_server = world.random.randrange(len(self._servers))
        self._pace = ONE_SERVER if len(self._servers) == 1 else ENSEMBLE
        self._chroot = chroot
        self._asked_timeout_ms = timeout_ms
        self._digest = digest
        self.timeout_ms = timeout_ms
        self.session = session
        self.state = SessionState.SUSPENDED
        self.heard_s = -1.0
        self.listeners: list[Callable[[SessionState], None]] = []
        self._frames: FrameStream | None = None
        self._waiting: deque[_Request] = deque()  # made while there was no connection
        self._sent: deque[_Request] = deque()
        self._xid = 0
        self._last_zxid = 0
        self._watches = ClientWatches()
        self._received_s = 0.0
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[None] = loop.create_future()
        self._broken: asyncio.Future[str] = loop.create_future()
        self._running = loop.create_task(self._run())
        self._running.add_done_callback(self._stopped)

    # ── requests and answers ─────────────────────────────────────────────────────────────────────────────────────

    def send(self, op: Op, body: bytes, watch: tuple[str, Watch] | None = None) -> asyncio.Future[Any]:
        """Ask for something; `watch` is left, under its path, when the answer says that the server has it."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.state in OVER:
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

    def _put_own(self, op: Op, record: Any, xid: int | None, answer: asyncio.Future[Any] | None = None) -> None:
        """A request that nobody asked for."""
        body = bytearray()
        write_record(record, body)
        self._put(_Request(op, bytes(body), answer or _ignored(), None), xid)

    def _take(self, data: bytes) -> None:
        self._received_s = self._world.clock.monotonic()
        reader = Reader(data)
        try:
            header: ReplyHeader = read_record(ReplyHeader, reader)
            if header.xid == NOTIFICATION_XID:
                event: Event = read_record(Event, reader)
                if event.type in EVENT_TYPES:
                    self._watches.fire(WatchEvent(EventType(event.type), self._chroot.own(event.path)))
                return
            request = self._answered(header.xid)
            self._last_zxid = max(self._last_zxid, header.zxid)
            if self._pace is ONE_SERVER or request.op is Op.SYNC:
                self._heard(request.sent_s)
            self._settle(request, header, reader)
        except CoordinationError as error:
            assert self._frames is not None
            self._frames.end(f"an answer that cannot be read: {error}")

    def _answered(self, xid: int) -> _Request:
        """Answers come in order; only those with numbers of their own (pings, who we are) may overtake others."""
        is_own = xid < 0
        for place, request in enumerate(self._sent):
            if request.xid == xid:
                del self._sent[place]
                return request
            if not is_own and request.xid >= 0:
                break
        raise ConnectionLossError(f"answer {xid} came where it was not due")

    def _settle(self, request: _Request, header: ReplyHeader, reader: Reader) -> None:
        error = error_for(header.error) if header.error else None
        if request.watch is not None and (error is None or request.op is Op.EXISTS):
            self._watches.add(_watch_kind(request.op, is_there=error is None), *request.watch)
        if request.answer.done():
            return
        if error is not None:
            request.answer.set_exception(error)
        elif request.op is Op.MULTI:
            request.answer.set_result(read_multi_results(reader))
        else:
            request.answer.set_result(read_record(ANSWERS.get(request.op, Nothing), reader))

    def _heard(self, sent_s: float) -> None:
        self.heard_s = max(self.heard_s, sent_s - self._pace.margin * self.timeout_ms / 1000)

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        """Keep a connection while the session lives."""
        delay_s = RECONNECT_S
        while self.state not in OVER:
            try:
                async with asyncio.timeout(self._pace.silence * self.timeout_ms / 1000):
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
            try:
                reason = await self._broken
            finally:
                probing.cancel()
            self._drop(reason)

    def _stopped(self, running: asyncio.Task[None]) -> None:
        if not running.cancelled() and running.exception() is not None:
            logger.error("the session with the coordination service failed", exc_info=running.exception())
        self.end(SessionState.FAILED)

    async def _open_connection(self) -> None:
        address = self._servers[self._next_server]
        self._next_server = (self._next_server + 1) % len(self._servers)
        stream = await self._world.network.connect(address.host, address.port)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        broken = self._broken = loop.create_future()

        def on_frame(data: bytes) -> None:
            if self.state is SessionState.CONNECTED:
                self._take(data)
            elif not answered.done():
                answered.set_result(data)
                frames.pause()  # what follows belongs to the session, which begins soon

        def on_end(reason: str) -> None:
            if not answered.done():
                answered.set_exception(ConnectionResetError(reason))
                answered.exception()
            if not broken.done():
                broken.set_result(reason)

        frames = FrameStream(stream, on_frame, on_end, frame_bytes_max=FRAME_BYTES_MAX)
        self._frames = frames
        sent_s = self._world.clock.monotonic()
        frames.send(self._connect_frame())
        try:
            response: ConnectResponse = read_record(ConnectResponse, Reader(await answered))
        except CoordinationError as error:
            raise ConnectionResetError(f"not an answer of a coordination service: {error}") from error
        self._begin(response, sent_s)
        frames.resume()

    def _connect_frame(self) -> bytearray:
        session_id, password = self.session
        out = bytearray(4)
        write_record(ConnectRequest(0, self._last_zxid, self._asked_timeout_ms, session_id, password), out)
        write_boolean(False, out)
        return sized(out)

    def _begin(self, response: ConnectResponse, sent_s: float) -> None:
        """The service has answered: the session goes on, or is over."""
        if response.timeout_ms <= 0:
            self.end(SessionState.EXPIRED)
            return
        if self.state in OVER:
            return
        self.session = Session(response.session_id, response.password)
        self.timeout_ms = response.timeout_ms
        self._heard(sent_s)
        self._received_s = self._world.clock.monotonic()
        if self._digest is not None:
            self._put_own(Op.AUTH, AuthPacket(0, "digest", self._digest), AUTH_XID, self._authenticated())
        for lost in self._watches.to_set_again(self._chroot, self._last_zxid):
            self._put_own(Op.SET_WATCHES, lost, SET_WATCHES_XID)
        while self._waiting:
            self._put(self._waiting.popleft())
        if not self.connected.done():
            self.connected.set_result(None)
        self._become(SessionState.CONNECTED)

    def _authenticated(self) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(outcome: asyncio.Future[Any]) -> None:
            if not outcome.cancelled() and isinstance(outcome.exception(), AuthFailedError):
                logger.error("the coordination service refuses our name and password")
                self.end(SessionState.FAILED)

        answer.add_done_callback(done)
        return answer

    async def _probe(self) -> None:
        """Keep the lease fresh, and leave a server that says nothing."""
        timeout_s = self.timeout_ms / 1000
        while True:
            await asyncio.sleep(self._pace.probe * timeout_s)
            frames = self._frames
            assert frames is not None
            if self._sent and self._world.clock.monotonic() - self._received_s > self._pace.silence * timeout_s:
                frames.end("the server is silent")
                return
            if self._pace is ONE_SERVER:
                self._put_own(Op.PING, Nothing(), PING_XID)
            else:
                self._put_own(Op.SYNC, OnlyPath("/"), None)

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

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def end(self, state: SessionState) -> None:
        """The session is over."""
        if self.state in OVER:
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
        if not self.connected.done():
            self.connected.set_exception(SessionExpiredError(f"the session is {state.value}"))
            self.connected.exception()

    async def stop(self) -> None:
        """Wait until nothing of it runs any more."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    def cancel(self) -> None:
        self._running.cancel()

    def _become(self, state: SessionState) -> None:
        if self.state is not state:
            self.state = state
            for listener in list(self.listeners):
                listener(state)


def _watch_kind(op: Op, *, is_there: bool) -> WatchKind:
    if op is Op.GET_CHILDREN2:
        return WatchKind.CHILDREN
    return WatchKind.DATA if is_there else WatchKind.EXISTS


def _ignored() -> asyncio.Future[Any]:
    """The answer to something that nobody waits for."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    return answer
