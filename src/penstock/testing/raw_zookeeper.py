"""One blocking connection that speaks ZooKeeper's protocol frame by frame: for tests of what is really sent."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, NamedTuple, Self

from penstock.zookeeper.jute import Reader, read_record, write_record
from penstock.zookeeper.protocol import (
    NOTIFICATION_XID,
    ConnectRequest,
    ConnectResponse,
    Event,
    Op,
    ReplyHeader,
    RequestHeader,
    sized,
)

TIMEOUT_S = 20.0
NO_PASSWORD = bytes(16)


class Answer(NamedTuple):
    """The header of an answer and the bytes behind it."""

    header: ReplyHeader
    body: bytes

    def record(self, kind: type[Any]) -> Any:
        return read_record(kind, Reader(self.body))


class ConnectionEnded(Exception):
    """The server has closed the connection."""


class RawZooKeeper:
    """A connection; `events` collects what came unasked."""

    def __init__(self, port: int, *, timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.events: list[Event] = []
        self.session = ConnectResponse(0, 0, 0, NO_PASSWORD)
        self._received = bytearray()
        self._xid = 0

    def connect(
        self, timeout_ms: int = 10_000, session_id: int = 0, password: bytes = NO_PASSWORD, last_zxid_seen: int = 0
    ) -> ConnectResponse:
        """Begin a session, or go on with one."""
        out = bytearray(4)
        write_record(ConnectRequest(0, last_zxid_seen, timeout_ms, session_id, password), out)
        self.send_bytes(sized(out))
        self.session = read_record(ConnectResponse, Reader(self.frame()))
        return self.session

    def send(self, op: int, *records: Any, xid: int | None = None) -> int:
        """Send a request without waiting; its number."""
        body = bytearray()
        for record in records:
            write_record(record, body)
        return self.send_body(op, bytes(body), xid=xid)

    def send_body(self, op: int, body: bytes, *, xid: int | None = None) -> int:
        if xid is None:
            self._xid += 1
            xid = self._xid
        out = bytearray(4)
        write_record(RequestHeader(xid, op), out)
        self.send_bytes(sized(out + body))
        return xid

    def send_bytes(self, data: bytes | bytearray) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionEnded from error

    def answer(self) -> Answer:
        """The next answer; events before it are collected."""
        while True:
            frame = self.frame()
            reader = Reader(frame)
            header: ReplyHeader = read_record(ReplyHeader, reader)
            if header.xid != NOTIFICATION_XID:
                return Answer(header, frame[reader.position :])
            self.events.append(read_record(Event, reader))

    def ask(self, op: int, *records: Any) -> Answer:
        self.send(op, *records)
        return self.answer()

    def settle(self) -> list[Event]:
        """What has happened so far: everything before the answer to a ping."""
        self.send(Op.PING, xid=-2)
        self.answer()
        seen, self.events = self.events, []
        return seen

    def frame(self) -> bytes:
        self._fill(4)
        size = int.from_bytes(self._received[:4], "big")
        self._fill(4 + size)
        frame = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        return frame

    def has_ended(self) -> bool:
        """Whether the server closes the connection; what it sends before is dropped."""
        try:
            while True:
                self.frame()
        except ConnectionEnded:
            return True
        except TimeoutError:
            return False

    def _fill(self, count: int) -> None:
        while len(self._received) < count:
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError as error:
                raise ConnectionEnded from error
            if not piece:
                raise ConnectionEnded
            self._received += piece

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
