"""Metrics over HTTP: `GET /metrics` for Prometheus, `GET /healthz` for whoever wants to know whether the broker serves.

A small part of HTTP/1.1, on a listener of its own: one request to a connection, no bodies in requests. Whoever is slow,
long-winded or many is held to the limits below. Everything else about a request is answered with an error; nothing in
it is ever more than compared. Who they are, and whether they may, a `Guard` says.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NamedTuple, Protocol

from penstock.base.world import Address, Buffer, Listener, Network, SocketOptions, Stream
from penstock.broker.metrics_format import CONTENT_TYPE
from penstock.security.api_rights import ROUTE_RIGHTS

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
HEAD_BYTES_MAX = 8 * 1024
HEAD_S_MAX = 5.0
ANSWER_S_MAX = 30.0
GOODBYE_S_MAX = 1.0
PORTS_TRIED = 100
PORT_MAX = 65535

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class _Request(NamedTuple):
    method: str
    path: str
    takes_chunks: bool
    login: str | None


class _Refused(Exception):
    """Answered with an error."""

    def __init__(self, status: int, text: str, header: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.header = header


class Guard(Protocol):
    """Who may come in: TLS below, a login, and which paths that one may ask for (`http_guard`)."""

    def secured(self, stream: Stream) -> Stream: ...

    async def meet(self, stream: Stream, given: str | None) -> Callable[[str], bool] | None: ...


class _Guest:
    """One connection, and the task that serves it."""

    __slots__ = ("is_known", "stream", "task")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.is_known = False  # its request has come, and is of somebody who may ask
        self.task: asyncio.Task[None] | None = None


class HttpMetrics:
    """Serves the text of `scrape` to whoever asks and, if there is a guard, may."""

    def __init__(
        self,
        network: Network,
        scrape: Callable[[], AsyncGenerator[bytes]],
        *,
        is_healthy: Callable[[], bool],
        guard: Guard | None = None,
    ) -> None:
        self._network = network
        self._scrape = scrape
        self._is_healthy = is_healthy
        self._guard = guard
        self._listener: Listener | None = None
        self._guests: dict[_Guest, None] = {}

    async def listen(self, host: str, port: int) -> Address:
        """Begin to serve; returns where."""
        self._listener = await self._network.listen(host, port, self._accept, SocketOptions(backlog=CONNECTIONS_MAX))
        return self._listener.address

    async def listen_nearby(self, host: str, port: int) -> Address:
        """The same on this port, or on the next one that is free."""
        last = min(port + PORTS_TRIED, PORT_MAX) if port else 0
        while True:
            try:
                return await self.listen(host, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == last:
                    raise
            port += 1

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        tasks = [guest.task for guest in self._guests if guest.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, stream: Stream) -> None:
        if len(self._guests) >= CONNECTIONS_MAX:
            silent = next((guest for guest in self._guests if not guest.is_known), None)
            if silent is None or silent.task is None:
                stream.close()
                return
            silent.task.cancel()
            del self._guests[silent]
        guest = _Guest(stream if self._guard is None else self._guard.secured(stream))
        self._guests[guest] = None
        guest.task = asyncio.get_running_loop().create_task(self._serve(guest))

    async def _serve(self, guest: _Guest) -> None:
        try:
            async with asyncio.timeout(HEAD_S_MAX):
                head = await _read_head(guest.stream)
            if head is not None:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self._answer(guest, head)
        except OSError:
            pass  # it has gone, or took too long
        except Exception:
            logger.exception("metrics could not be told")
        finally:
            guest.stream.close()
            self._guests.pop(guest, None)

    # ── answering ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, guest: _Guest, head: bytes) -> None:
        stream = guest.stream
        try:
            request = _parse(head)
            await self._check(stream, request)
            guest.is_known = True
            if request.path == "/healthz":
                status, text = (200, "ok\n") if self._is_healthy() else (503, "not serving\n")
                await _send_whole(stream, status, text, has_body=request.method == "GET")
            elif request.method == "HEAD":
                await _send(stream, _head(200, CONTENT_TYPE))
            else:
                await self._send_metrics(stream, request.takes_chunks)
                if not request.takes_chunks:
                    return  # the end of the connection is the end of the answer
        except _Refused as refused:
            await _send_whole(stream, refused.status, f"{refused}\n", refused.header)
        await _say_goodbye(stream)

    async def _check(self, stream: Stream, request: _Request) -> None:
        may_ask_for = None
        if self._guard is not None:
            may_ask_for = await self._guard.meet(stream, request.login)
            if may_ask_for is None:
                raise _Refused(401, "a login is needed", 'WWW-Authenticate: Basic realm="penstock"\r\n')
        if request.path not in ROUTE_RIGHTS:
            raise _Refused(404, "there is /metrics, and /healthz")
        if request.method not in ("GET", "HEAD"):
            raise _Refused(405, "only GET is served", "Allow: GET, HEAD\r\n")
        if may_ask_for is not None and not may_ask_for(request.path):
            raise _Refused(403, f"this user has no right to {request.path}")

    async def _send_metrics(self, stream: Stream, takes_chunks: bool) -> None:
        async with aclosing(self._scrape()) as pieces:
            try:
                first = await anext(pieces)
            except Exception as error:
                logger.exception("metrics could not be told")
                raise _Refused(500, "see the broker's log") from error
            chunk: Callable[[bytes], bytes] = _chunk if takes_chunks else bytes
            field = "Transfer-Encoding: chunked\r\n" if takes_chunks else ""
            await _send(stream, _head(200, CONTENT_TYPE, field) + chunk(first))
            async for piece in pieces:
                await _send(stream, chunk(piece))
        if takes_chunks:
            await _send(stream, _chunk(b""))


# ── HTTP ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse(head: bytes) -> _Request:
    if len(head) > HEAD_BYTES_MAX:
        raise _Refused(431, f"the head of a request has at most {HEAD_BYTES_MAX} bytes")
    request_line, *fields = head.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(request_line)
    if match is None:
        raise _Refused(400, "this is not HTTP/1.1")
    login = None
    for field in fields:
        name, colon, value = field.partition(b":")
        if not colon or not name.strip():
            raise _Refused(400, "a field of the head has no name")
        if name.lower() == b"authorization":
            login = _basic_login(value.strip())
    path = match[2].decode().partition("?")[0]
    return _Request(match[1].decode(), path, match[3] == b"1", login)


def _basic_login(value: bytes) -> str | None:
    kind, _, credentials = value.partition(b" ")
    if kind.lower() != b"basic":
        return None
    try:
        return base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _head(status: int, content_type: str, more: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n{more}"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    ).encode()


def _chunk(piece: bytes) -> bytes:
    """An empty one is the last."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


async def _send_whole(stream: Stream, status: int, text: str, header: str = "", *, has_body: bool = True) -> None:
    body = text.encode()
    head = _head(status, _PLAIN, f"{header}Content-Length: {len(body)}\r\n")
    await _send(stream, head + body if has_body else head)


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _read_head(stream: Stream) -> bytes | None:
    """What comes before the first empty line, or more than is allowed; None if the peer goes before it."""
    received = bytearray()
    while True:
        count = await _receive(stream, buffer := bytearray(4096))
        received += buffer[:count]
        end = received.find(b"\r\n\r\n")
        if end >= 0:
            return bytes(received[:end])
        if not count:
            return None
        if len(received) > HEAD_BYTES_MAX:
            return bytes(received)


async def _say_goodbye(stream: Stream) -> None:
    """Let the peer close first: to close on bytes of it that were not read would take the answer back."""
    try:
        async with asyncio.timeout(GOODBYE_S_MAX):
            while await _receive(stream, bytearray(4096)):
                pass
    except OSError:
        pass


async def _receive(stream: Stream, buffer: bytearray) -> int:
    while True:
        try:
            return stream.recv_into(buffer)
        except BlockingIOError:
            await _ready(stream.watch_read)


async def _send(stream: Stream, data: Buffer) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[stream.send(rest) :]
        except BlockingIOError:
            await _ready(stream.watch_write)


async def _ready(watch: Callable[[Callable[[], None] | None], None]) -> None:
    """Wait until there is something to receive, or room to send."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watch(lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        watch(None)
