"""A blocking client on a plain socket, for tests that break the rules: send any bytes, see exactly what comes back.

    with RawClient("127.0.0.1", 9092) as client:
        client.send(b"\\xff\\xff\\xff\\xff")
        assert client.is_closed_within(1)

`call` does what a client should do, for the parts of a test that are not hostile.
"""

from __future__ import annotations

import select
import socket
import time
from types import TracebackType
from typing import Any, Self

from penstock.wire.api import APIS, OWN_APIS
from penstock.wire.api_declaration import Api
from penstock.wire.codec import decode, encode_into
from penstock.wire.headers import RequestHeader, decode_response_header, encode_request_header
from penstock.wire.schema import Message

ANSWER_TIMEOUT_S = 20.0

_API_OF: dict[type, Api] = {api.request: api for api in (APIS | OWN_APIS).values()}


class ConnectionEnded(Exception):
    """The broker closed the connection."""


class RawClient:
    """One connection."""

    def __init__(self, host: str, port: int, *, receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(ANSWER_TIMEOUT_S)
        try:
            self.socket.connect((host, port))
        except BaseException:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._number = 0

    # Bytes

    def send(self, content: bytes) -> None:
        """Send all of it; a broker that has gone is not an error here."""
        try:
            self.socket.sendall(content)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive_frame(self, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
        """The next whole frame without its size; ConnectionEnded if the broker closes instead, TimeoutError."""
        deadline = time.monotonic() + timeout_s
        size = int.from_bytes(self._receive(4, deadline), "big")
        return self._receive(size, deadline)

    def _receive(self, count: int, deadline: float) -> bytes:
        parts = [self._received]
        have = len(self._received)
        while have < count:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                part = self.socket.recv(1 << 20)
            except (ConnectionResetError, BrokenPipeError) as error:
                raise ConnectionEnded(str(error)) from error
            if not part:
                raise ConnectionEnded("closed")
            parts.append(part)
            have += len(part)
        whole = b"".join(parts)
        self._received = whole[count:]
        return whole[:count]

    def is_closed_within(self, seconds: float) -> bool:
        """Whether the broker closes the connection in this time; what it sends before that is thrown away."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.socket], [], [], left)[0]:
                try:
                    if not self.socket.recv(1 << 20):
                        return True
                except OSError:
                    return True
        return False

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Requests

    def frame(self, key: int, version: int, body: bytes, client_id: str | None = "raw") -> bytes:
        """A whole request frame with any key, version and body."""
        self._number += 1
        out = bytearray(4)
        encode_request_header(RequestHeader(key, version, self._number, client_id), out)
        out += body
        out[:4] = (len(out) - 4).to_bytes(4, "big")
        return bytes(out)

    def frame_of(self, request: Message, version: int | None = None) -> bytes:
        """The frame of a sound request."""
        api = _API_OF[type(request)]
        body = bytearray()
        chosen = api.max_version if version is None else version
        encode_into(request, chosen, body)
        return self.frame(api.key, chosen, bytes(body))

    def call(self, request: Message, version: int | None = None) -> Any:
        """Ask and wait for the answer."""
        api = _API_OF[type(request)]
        chosen = api.max_version if version is None else version
        self.send(self.frame_of(request, chosen))
        frame = self.receive_frame()
        number, position = decode_response_header(api.key, chosen, frame)
        assert number == self._number, f"answer {number} to request {self._number}"
        response, end = decode(api.response, chosen, frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes after the answer to {api.name}"
        return response
