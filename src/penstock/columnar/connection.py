"""One connection to one broker: requests go out at once, answers come back in the same order.

    answer = connection.ask(MetadataRequest(topics=None))          # send, and wait
    fetch = connection.send(FetchRequest(…))                       # several may be under way
    …                                                              # the broker works while we do something else
    answer = fetch.wait()

The socket never blocks; waiting is done with `poll`, so that every wait has an end. A frame is received into a buffer
of its own, of which the records of a fetched partition are slices. The buffer is as large as the request lets expect;
what an answer claims beyond that is believed only as its bytes arrive, and only up to a limit.

Whatever goes wrong ends the connection with an OSError: a late answer too, since those after it could not be told from
it. For one thread at a time.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

from penstock.base.errors import Error
from penstock.base.world import Address, Buffer
from penstock.columnar.frames import FrameBuffer, Limits
from penstock.columnar.settings import ClientSettings
from penstock.columnar.versions import chosen_version, common_version
from penstock.wire.api import APIS, OWN_APIS
from penstock.wire.api_declaration import API_VERSIONS_KEY, Api
from penstock.wire.codec import decode, encode_into
from penstock.wire.headers import RequestHeader, decode_response_header, encode_request_header
from penstock.wire.messages import k01_fetch
from penstock.wire.schema import Message, ProtocolError

ANSWER_BYTES_MAX = 64 << 20
FETCH_BYTES_MAX = 1 << 30
#: How large answers are; those to a fetch beside the records that were asked for.
EXPECTED_BYTES = 256 * 1024
SMALL = Limits(EXPECTED_BYTES, ANSWER_BYTES_MAX)
#: So many buffers a system takes in one call.
BUFFERS_MAX = 1024
#: An answer that comes more slowly than this is late; one that trickles in must not be waited for without end.
SLOWEST_BYTES_PER_S = 32 * 1024

_SIZE = Struct(">i")
_UNSUPPORTED_VERSION = Error.UNSUPPORTED_VERSION.to_bytes(2, "big")
_API_OF_REQUEST: dict[type, Api] = {api.request: api for api in (APIS | OWN_APIS).values()}
_WANTS_READ = (BlockingIOError, ssl.SSLWantReadError)
_WANTS_WRITE = (BlockingIOError, ssl.SSLWantWriteError)


class Pending:
    """A request that is under way, and then its answer."""

    __slots__ = ("_connection", "_frame", "api", "limits", "number", "version")

    def __init__(self, connection: Connection, api: Api, version: int, number: int, fetched_bytes: int | None) -> None:
        self.api = api
        self.version = version
        self.number = number
        self.limits = SMALL if fetched_bytes is None else Limits(fetched_bytes + EXPECTED_BYTES, FETCH_BYTES_MAX)
        self._connection = connection
        self._frame: memoryview | None = None

    def ready(self, wait_s: float = 0.0) -> bool:
        """Whether the answer has come, or comes within a time; OSError if it never will."""
        if self._frame is None:
            self._connection.receive(self, time.monotonic() + wait_s)
        return self._frame is not None

    def wait(self, timeout_s: float | None = None) -> Any:
        """The answer, decoded. One that does not come in time ends the connection: TimeoutError. The time counts from
        now, since what is asked ahead may lie in the system's buffers for long, and is longer for a large answer."""
        connection = self._connection
        if self._frame is None:
            timeout_s = connection.request_timeout_s if timeout_s is None else timeout_s
            connection.receive(self, time.monotonic() + timeout_s, bytes_per_s=SLOWEST_BYTES_PER_S)
            if self._frame is None:
                raise connection.end(TimeoutError(f"{connection.address}: no answer to {self.api.name} in time"))
        return connection.decoded(self, self._frame)

    def take(self, frame: memoryview) -> None:
        self._frame = frame


class Connection:
    """See the head of this file. What makes it (TCP, TLS, versions, login) is in `connecting`."""

    def __init__(self, plain: socket.socket, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.versions: Mapping[int, tuple[int, int]] = {}
        """the lowest and highest version of each API that the broker serves"""
        self.features: Mapping[str, int] = {}
        """the level of each feature that the cluster has agreed upon, such as transaction.version"""
        self.renew_s: float | None = None
        """when (monotonic) the login is nearly over, and another connection is better"""
        self.request_timeout_s = settings.request_timeout_s
        self._client_id = settings.client_id
        self._socket = plain
        self._expected: deque[Pending] = deque()
        self._last_number = 0
        self._ended: OSError | None = None
        self._frames = FrameBuffer()
        self._received_bytes = 0
        plain.setblocking(False)
        self._readable = select.poll()
        self._readable.register(plain, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(plain, select.POLLOUT)
        self._usable = select.poll()
        self._usable.register(plain, select.POLLIN | select.POLLOUT)

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def version_of(self, api: Api, highest: int | None = None) -> int:
        """The version that is spoken here; Refused if there is none."""
        return chosen_version(api, self.versions, self.address, highest)

    def serves(self, api: Api, lowest: int = 0) -> bool:
        """Whether the broker has an API, in this version at least."""
        version = common_version(api, self.versions)
        return version is not None and version >= lowest

    def send(self, request: Message, version: int | None = None) -> Pending:
        """Send a request, in the highest version that both know unless another is named; does not wait."""
        api = _API_OF_REQUEST[type(request)]
        version = self.version_of(api) if version is None else version
        body = bytearray()
        encode_into(request, version, body)
        fetched_bytes = request.max_bytes if isinstance(request, k01_fetch.FetchRequest) else None
        return self.send_parts(api, version, (body,), fetched_bytes)

    def send_parts(self, api: Api, version: int, body: Sequence[Buffer], fetched_bytes: int | None = None) -> Pending:
        """Send a request that is encoded already, in parts which are not copied together."""
        if self._ended is not None:
            raise self._again()
        self._last_number = number = (self._last_number + 1) & 0x7FFFFFFF
        head = bytearray(4)
        encode_request_header(RequestHeader(api.key, version, number, self._client_id), head)
        _SIZE.pack_into(head, 0, len(head) - 4 + sum(len(part) for part in body))
        pending = Pending(self, api, version, number, fetched_bytes)
        self._send_all([memoryview(part) for part in self._joined([head, *body])])
        self._expected.append(pending)
        return pending

    def ask(self, request: Message, version: int | None = None, timeout_s: float | None = None) -> Any:
        """Send a request and wait for its answer."""
        return self.send(request, version).wait(timeout_s)

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._expected)

    def _send_all(self, parts: list[memoryview]) -> None:
        until_s = time.monotonic() + self.request_timeout_s
        try:
            while parts:
                try:
                    sent = self._send_some(parts)
                except (*_WANTS_WRITE, ssl.SSLWantReadError):
                    self._wait_for_room(until_s)
                    continue
                while parts and sent >= len(parts[0]):
                    sent -= len(parts.pop(0))
                if parts and sent:
                    parts[0] = parts[0][sent:]
        except (OSError, ProtocolError) as error:
            raise self.end(error) from error

    def _joined(self, parts: list[Buffer]) -> list[Buffer]:
        """TLS makes a record of whatever it is given, so it is given all at once."""
        return [b"".join(parts)] if isinstance(self._socket, ssl.SSLSocket) else parts

    def _send_some(self, parts: list[memoryview]) -> int:
        if isinstance(self._socket, ssl.SSLSocket):
            return self._socket.send(parts[0])
        return self._socket.sendmsg(parts[:BUFFERS_MAX])

    def _wait_for_room(self, until_s: float) -> None:
        """A broker that waits for us to read would not read itself: take its answers while there is no room."""
        if not self._poll(self._usable if self._expected else self._writable, until_s):
            raise TimeoutError("the broker does not take a request")
        if self._expected:
            self._receive_what_is_there(self._expected[-1])

    # ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, wanted: Pending, until_s: float, bytes_per_s: float = math.inf) -> None:
        """Receive answers up to the wanted one, or until a time, which moves with what is received meanwhile; what is
        there already is taken in any case."""
        if self._ended is not None:
            raise self._again()
        before = self._received_bytes
        try:
            while not self._receive_what_is_there(wanted):
                if not self._poll(self._readable, until_s + (self._received_bytes - before) / bytes_per_s):
                    return
        except (OSError, ProtocolError) as error:
            raise self.end(error) from error

    def _receive_what_is_there(self, wanted: Pending) -> bool:
        """Whether the wanted answer is complete; False if there is nothing more to be read now."""
        while True:
            try:
                count = self._socket.recv_into(self._frames.room)
            except _WANTS_READ:
                return False
            except ssl.SSLWantWriteError:
                self._writable.poll(int(self.request_timeout_s * 1000))
                continue
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            if not self._expected:
                raise ProtocolError("it answers what was not asked")
            self._received_bytes += count
            frame = self._frames.received(count, self._expected[0].limits)
            if frame is not None:
                pending = self._expected.popleft()
                pending.take(frame)
                if pending is wanted:
                    return True

    def decoded(self, pending: Pending, frame: memoryview) -> Any:
        """The message of an answer; an answer that cannot be read ends the connection."""
        try:
            number, position = decode_response_header(pending.api.key, pending.version, frame)
            if number != pending.number:
                raise ProtocolError(f"it answers request {number} where {pending.number} is due")
            return decode(pending.api.response, _version_of_answer(pending, frame), frame, position)[0]
        except ProtocolError as error:
            raise self.end(error) from error

    def _poll(self, poll: select.poll, until_s: float) -> bool:
        left_s = until_s - time.monotonic()
        return left_s > 0 and bool(poll.poll(left_s * 1000 + 1))

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        return self._ended is None

    def is_alive(self) -> bool:
        """Whether the broker has not closed it, as far as can be seen without asking."""
        if self._ended is None and not self._expected:
            try:
                self._socket.recv_into(self._frames.room)
                self.end(ConnectionResetError("the broker closed the connection"))
            except _WANTS_READ:
                pass
            except OSError as error:
                self.end(error)
        return self._ended is None

    def end(self, error: OSError | ProtocolError) -> Exception:
        """Close it for a reason; returns what to raise."""
        text = getattr(error, "strerror", None) or str(error)
        if isinstance(error, ProtocolError):
            reason: OSError = ConnectionAbortedError(f"{self.address}: what it answers cannot be read: {text}")
        elif str(error).startswith(str(self.address)):
            reason = error
        else:
            reason = type(error)(f"{self.address}: {text}")
        if self._ended is None:
            self._ended = reason
            self._expected.clear()
            self._frames = FrameBuffer()
            self._socket.close()
        return reason

    def close(self) -> None:
        self.end(ConnectionAbortedError("it was closed"))

    def _again(self) -> OSError:
        """The reason of the end, as an error of its own for whoever comes later."""
        return ConnectionAbortedError(str(self._ended))


def _version_of_answer(pending: Pending, frame: memoryview) -> int:
    """A broker that does not know our version of ApiVersions says so in version 0, which everybody can read."""
    if pending.api.key == API_VERSIONS_KEY and frame[4:6] == _UNSUPPORTED_VERSION:
        return 0
    return pending.version
