"""One client of the keeper: its requests, in order, and their answers, in the same order.

A request takes effect when it arrives (`keeper_requests.py`). Its answer waits for the disk, and behind the answers
before it. What happened to watched znodes stands in the same queue, **by the number of its transaction**: behind the
answers to what was asked before it (the client must know of its watch by then) and before those to what was asked after
it (which could show what it tells).

Nothing here grows with what a client does not do: a connection stops reading while it has enough to answer, stops
building answers while its client does not read them, and is given up when that goes too far.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Protocol

from penstock.base.world import Stream
from penstock.zookeeper.errors import (
    AuthFailedError,
    ConnectionLossError,
    CoordinationError,
    MarshallingError,
    UnimplementedError,
)
from penstock.zookeeper.frames import FrameStream
from penstock.zookeeper.jute import Reader, read_record, write_record
from penstock.zookeeper.keeper_requests import Begun, KeeperRequests
from penstock.zookeeper.operations import Identity, WatchEvent
from penstock.zookeeper.protocol import (
    CONNECTED_STATE,
    NOTIFICATION_XID,
    PING_XID,
    ConnectRequest,
    ConnectResponse,
    Event,
    Op,
    ReplyHeader,
    RequestHeader,
    connect_response_frame,
    frame,
    sized,
)
from penstock.zookeeper.store import Store, Watcher

logger = logging.getLogger(__name__)

FRAME_BYTES_MAX = (1 << 20) - 1  # as ZooKeeper's default
CONNECT_FRAME_BYTES_MAX = 4096
IN_FLIGHT_MAX = 1000  # requests of one client
IN_FLIGHT_BYTES_MAX = 1 << 20
UNSENT_BYTES_HIGH = 256 * 1024  # no more answers are built before the client has read
UNSENT_BYTES_MAX = 8 << 20
QUEUE_MAX = 50_000  # events must go out in any case: a client that reads so little is given up


class Server(Protocol):
    """What a connection asks of the keeper it belongs to."""

    store: Store
    in_flight_bytes: int  # of all connections

    @property
    def is_crowded(self) -> bool:
        """Whether all connections together have so much in flight that each should finish its own first."""
        ...

    async def begin(self, connection: KeeperConnection, request: ConnectRequest) -> ConnectResponse: ...

    def heard_of(self, connection: KeeperConnection) -> None: ...

    def ended(self, connection: KeeperConnection) -> None: ...

    def four_letters(self, word: bytes) -> bytes | None: ...


class _Answer:
    """What is to be sent when the outcome is there and it is its turn."""

    __slots__ = ("begun", "op", "size_bytes", "xid", "zxid")

    def __init__(self, xid: int, op: Op, begun: Begun, zxid: int, size_bytes: int) -> None:
        self.xid = xid
        self.op = op
        self.begun = begun
        self.zxid = zxid
        self.size_bytes = size_bytes


class _Told:
    """An event in its place between the answers."""

    __slots__ = ("event", "zxid")

    def __init__(self, event: WatchEvent, zxid: int) -> None:
        self.event = event
        self.zxid = zxid


class KeeperConnection:
    """See the head of this file."""

    def __init__(self, server: Server, stream: Stream) -> None:
        self.session_id = 0
        self.timeout_ms = 0
        self._server = server
        self._store = server.store
        self._requests: KeeperRequests | None = None  # once there is a session
        self._connecting: asyncio.Task[None] | None = None
        self._queue: deque[_Answer | _Told] = deque()
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._is_closing = False
        self._frames = FrameStream(
            stream,
            self._take,
            self._over,
            frame_bytes_max=CONNECT_FRAME_BYTES_MAX,
            unsent_bytes_max=UNSENT_BYTES_MAX,
            on_drained=self._send_ready,
            four_letters=server.four_letters,
        )

    @property
    def has_session(self) -> bool:
        return self._requests is not None

    def end(self, reason: str) -> None:
        self._frames.end(reason)

    def _over(self, reason: str) -> None:
        logger.debug("connection of session %#x: %s", self.session_id, reason)
        if self._connecting is not None:
            self._connecting.cancel()
        self._server.in_flight_bytes -= self._in_flight_bytes
        self._in_flight_bytes = 0
        self._queue.clear()
        self._server.ended(self)

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, data: bytes) -> None:
        try:
            if self._requests is None:
                self._connect(data)
            else:
                self._request(self._requests, data)
        except MarshallingError as error:
            self.end(f"a request that cannot be read: {error}")
        except ConnectionLossError as error:  # the store has stopped
            self.end(str(error))

    def _connect(self, data: bytes) -> None:
        reader = Reader(data)
        request: ConnectRequest = read_record(ConnectRequest, reader)
        if request.last_zxid_seen > self._store.tree.last_zxid:
            self.end("the client has seen a later state than this keeper has")
            return
        self._frames.pause()
        self._connecting = asyncio.get_running_loop().create_task(
            self._begin_session(request, with_read_only=not reader.is_at_end)
        )

    async def _begin_session(self, request: ConnectRequest, *, with_read_only: bool) -> None:
        try:
            response = await self._server.begin(self, request)
        except CoordinationError as error:
            self.end(str(error))
            return
        self._frames.send(connect_response_frame(response, with_read_only=with_read_only))
        if response.timeout_ms <= 0:
            self.end("the session has expired")
            return
        watcher = Watcher(self.session_id, self.tell, wants_zxid=True)
        address = Identity("ip", self._frames.stream.peer.host)
        self._requests = KeeperRequests(self._store, watcher, (address,))
        self._frames.frame_bytes_max = FRAME_BYTES_MAX
        self._frames.resume()

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _request(self, requests: KeeperRequests, data: bytes) -> None:
        reader = Reader(data)
        header: RequestHeader = read_record(RequestHeader, reader)
        self._server.heard_of(self)
        try:
            op = Op(header.type)
        except ValueError:
            op = Op.ERROR
        try:
            begun = requests.begin(op, reader)
        except ConnectionLossError:
            raise
        except CoordinationError as error:
            begun = _failed(error)
        xid = PING_XID if op is Op.PING else header.xid
        self._queue.append(_Answer(xid, op, begun, self._store.tree.last_zxid, len(data)))
        self._in_flight += 1
        self._in_flight_bytes += len(data)
        self._server.in_flight_bytes += len(data)
        self._is_closing = self._is_closing or op is Op.CLOSE
        self._read_or_rest()
        if begun.outcome.done():
            self._settled(begun.outcome)
        else:
            begun.outcome.add_done_callback(self._settled)

    def _settled(self, outcome: asyncio.Future[Any]) -> None:
        if not outcome.cancelled():
            outcome.exception()  # also where the connection is over, and nobody asks for it
        self._send_ready()

    def _read_or_rest(self) -> None:
        has_enough = (
            self._is_closing
            or self._in_flight >= IN_FLIGHT_MAX
            or self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX
            or (self._in_flight > 0 and self._server.is_crowded)
        )
        if has_enough:
            self._frames.pause()
        else:
            self._frames.resume()

    # ── answers and events ───────────────────────────────────────────────────────────────────────────────────────

    def tell(self, event: WatchEvent, zxid: int) -> None:
        """Something happened, in transaction `zxid`, to a znode that this client watches."""
        place = len(self._queue)
        if place > QUEUE_MAX:
            self.end("it does not read what it is sent")
            return
        while place and self._queue[place - 1].zxid >= zxid and isinstance(self._queue[place - 1], _Answer):
            place -= 1
        self._queue.insert(place, _Told(event, zxid))
        self._send_ready()

    def _send_ready(self) -> None:
        while self._queue and not self._frames.is_closed:
            item = self._queue[0]
            if isinstance(item, _Told):
                self._queue.popleft()
                self._send_event(item.event)
                continue
            if not item.begun.outcome.done() or self._frames.unsent_bytes >= UNSENT_BYTES_HIGH:
                break
            self._queue.popleft()
            self._forget(item)
            self._send(item)
        if self._requests is not None and not self._frames.is_closed:
            self._read_or_rest()

    def _forget(self, answer: _Answer) -> None:
        self._in_flight -= 1
        self._in_flight_bytes -= answer.size_bytes
        self._server.in_flight_bytes -= answer.size_bytes

    def _send(self, answer: _Answer) -> None:
        error = answer.begun.outcome.exception()
        # What was taken back for lack of room had a number too; nobody may believe to have seen it.
        zxid = 0 if answer.op is Op.AUTH else min(answer.zxid, self._store.durable_zxid)
        out = bytearray(4)
        if isinstance(error, ConnectionLossError):
            self.end(str(error))
            return
        if isinstance(error, CoordinationError):
            write_record(ReplyHeader(answer.xid, zxid, error.code), out)
        elif error is not None:
            logger.error("a request of session %#x failed", self.session_id, exc_info=error)
            self.end("a request failed")
            return
        else:
            if answer.op in (Op.SET_WATCHES, Op.SET_WATCHES2):
                for event in answer.begun.outcome.result():
                    self._send_event(event)
            write_record(ReplyHeader(answer.xid, zxid, 0), out)
            answer.begun.build(answer.begun.outcome.result(), out)
        self._frames.send(sized(out))
        if answer.op is Op.CLOSE:
            self.end("closed by its client")
        elif isinstance(error, AuthFailedError):
            self.end("authentication failed")
        elif isinstance(error, UnimplementedError) and answer.op is Op.ERROR:
            self.end("an operation that does not exist")

    def _send_event(self, event: WatchEvent) -> None:
        header = ReplyHeader(NOTIFICATION_XID, -1, 0)
        self._frames.send(frame(header, Event(event.type, CONNECTED_STATE, event.path)))


def _failed(error: CoordinationError) -> Begun:
    outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    outcome.set_exception(error)
    outcome.exception()
    return Begun(outcome, lambda _done, _out: None)
