"""The network of this machine: raw non-blocking sockets, one poll for all that receive, the event loop's writers.

Not asyncio's transports: those copy what they receive, and uvloop's have no sendfile.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from penstock.base._real_ends import StreamEnd
from penstock.base._real_poll import ReadPoll, read_poll
from penstock.base.addresses import plain_address
from penstock.base.real_disk import RealFile
from penstock.base.world import Address, Buffer, File, SocketOptions, Stream

logger = logging.getLogger(__name__)

_DEFAULT_OPTIONS = SocketOptions()
ACCEPTS_PER_WAKE = 64
ACCEPT_PAUSE_S = 0.1  # after running out of file descriptors
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class RealStream(StreamEnd):
    """One connected socket."""

    __slots__ = ("_loop", "_poll", "_writing", "after_reading", "local", "peer")

    after_reading: Callable[[Callable[[], None]], None]

    def __init__(self, connected: socket.socket, loop: asyncio.AbstractEventLoop, poll: ReadPoll) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        super().__init__(connected)
        self._loop = loop
        self._poll = poll
        self._writing = False
        self.peer = _address(connected.getpeername())
        self.local = _address(connected.getsockname())
        self.after_reading = poll.after_reading

    def send_more(self, data: Buffer) -> int:
        return self._socket.send(data, _MSG_MORE)

    def send_file(self, file: File, offset: int, count: int) -> int:
        assert isinstance(file, RealFile)
        return os.sendfile(self._fd, file.fd, offset, count)

    def watch_read(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._poll.watch(self._fd, callback)
        elif self._fd >= 0:
            self._poll.forget(self._fd)

    def watch_write(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._loop.add_writer(self._fd, callback)
            self._writing = True
        elif self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False

    def close(self) -> None:
        if self._fd >= 0:
            self.watch_read(None)
            self.watch_write(None)
            self._fd = -1
            self._socket.close()


def _address(name: Any) -> Address:
    """As rules and limits compare it: one listener may serve IPv4 and IPv6."""
    host, port, *_ = name
    return Address(plain_address(host), port)


class RealListener:
    """A listening socket; accepts a bounded number of connections for each wake of the loop."""

    def __init__(
        self,
        listening: socket.socket,
        accept: Callable[[Stream], None],
        loop: asyncio.AbstractEventLoop,
        poll: ReadPoll,
    ) -> None:
        self.address = Address(*listening.getsockname()[:2])
        self._socket = listening
        self._accept = accept
        self._loop = loop
        self._poll = poll
        self._closed = False
        loop.add_reader(listening.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        for _ in range(ACCEPTS_PER_WAKE):
            try:
                connected, _ = self._socket.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                logger.warning("cannot accept a connection on %s: %s", self.address, error.strerror)
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(ACCEPT_PAUSE_S, self._resume)
                return
            try:
                stream = RealStream(connected, self._loop, self._poll)
            except OSError:  # the peer is gone already
                connected.close()
                continue
            self._accept(stream)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


class RealNetwork:
    """TCP over IPv4 and IPv6, on one event loop."""

    def __init__(self, poll: Callable[[asyncio.AbstractEventLoop], ReadPoll] = read_poll) -> None:
        self._new_poll = poll
        self._poll: ReadPoll | None = None

    def _poll_on(self, loop: asyncio.AbstractEventLoop) -> ReadPoll:
        if self._poll is None:
            self._poll = self._new_poll(loop)
        return self._poll

    async def listen(
        self, host: str, port: int, accept: Callable[[Stream], None], options: SocketOptions = _DEFAULT_OPTIONS
    ) -> RealListener:
        loop = asyncio.get_running_loop()
        family, _, _, _, address = (
            await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                dual = 0 if host in ("", "::") else 1
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, dual)
            if options.receive_buffer_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
            if options.send_buffer_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
            listening.bind(address)
            listening.listen(options.backlog)
        except BaseException:
            listening.close()
            raise
        return RealListener(listening, accept, loop, self._poll_on(loop))

    async def connect(self, host: str, port: int) -> RealStream:
        loop = asyncio.get_running_loop()
        last_error: OSError | None = None
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connecting = socket.socket(family, kind, protocol)
            connecting.setblocking(False)
            try:
                await loop.sock_connect(connecting, address)
                return RealStream(connecting, loop, self._poll_on(loop))
            except OSError as error:
                connecting.close()
                last_error = error
            except BaseException:
                connecting.close()
                raise
        assert last_error is not None
        raise last_error
