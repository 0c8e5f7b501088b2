"""A broker made of a socket and a function, to answer as no broker should."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.wire.codec import encode_into
from penstock.wire.headers import decode_request_header, encode_response_header
from penstock.wire.messages.k18_api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from penstock.wire.schema import Message

Answer = Callable[[socket.socket, bytes], None]
"""Gets a connection, and the request without its size."""


def frame_of(request: bytes, message: Message, version: int | None = None, number: int | None = None) -> bytes:
    """An answer as a good broker sends it; in another version, or with another number, as a bad one does."""
    header, _ = decode_request_header(request)
    out = bytearray(4)
    asked = header.correlation_id if number is None else number
    encode_response_header(header.api_key, header.api_version, asked, out)
    encode_into(message, header.api_version if version is None else version, out)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return bytes(out)


def versions(**ranges: int) -> ApiVersionsResponse:
    """ApiVersions of a broker that serves everything we know, up to these (`k3=7`)."""
    rows = [
        ApiVersionsResponseApiVersion(api_key=key, min_version=0, max_version=ranges.get(f"k{key}", 30))
        for key in range(30)
    ]
    return ApiVersionsResponse(api_keys=rows)


class FakeBroker:
    """Accepts connections one after the other, and gives each request to `answer`."""

    def __init__(self, answer: Answer, greeting: bytes = b"") -> None:
        self.connections = 0
        self.requests: list[int] = []  # their API keys
        self._answer = answer
        self._greeting = greeting
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            thread.daemon = True
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.sendall(self._greeting)
            while size := _exactly(connection, 4):
                request = _exactly(connection, struct.unpack(">i", size)[0])
                self.requests.append(struct.unpack_from(">h", request)[0])
                self._answer(connection, request)
        except (OSError, struct.error):
            pass
        finally:
            connection.close()

    def close(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._thread.join()


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            return b""
        received += part
    return received


@contextmanager
def fake_broker(answer: Answer, greeting: bytes = b"") -> Iterator[FakeBroker]:
    broker = FakeBroker(answer, greeting)
    try:
        yield broker
    finally:
        broker.close()
