"""What every small request and its answer pass: one whole frame in, one answer out.

`Exchange` is the upper half of `Connection`, which says how the whole works, and `FrameDispatch` that of `Dispatcher`;
everything that is not the common case is in the classes made of them. This file is plain Python. With a C compiler,
Cython builds the same file with the types of `_exchange.pxd`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from penstock.base.world import File, Stream

if TYPE_CHECKING:
    from penstock.broker.connection import Intake, Response

UNSENT_BYTES_MAX = 1024 * 1024
READ_RANGE_BYTES_MAX = 16 * 1024  # of a file, to be sent with what comes before and after it

_READ_RANGE_BYTES_MAX = READ_RANGE_BYTES_MAX
_UNSENT_BYTES_MAX = UNSENT_BYTES_MAX
_UNPACK_SIZE = Struct(">i").unpack_from
_WHOLE_FRAME_BYTES_MIN = 12  # size, api key, version, correlation id
_HEAD_AT = 8  # after api key, version and correlation id

#: Of the requests that are like one before them, one in so many is timed, and stands for all: a power of two.
TIMED_ONE_IN = 64
_TIMED_MASK = TIMED_ONE_IN - 1


class ConnectionBroken(Exception):
    """The peer broke the protocol; the text says how. The connection is closed."""


class FileRange:
    """Bytes that go from a file to the socket without passing through the program."""

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    @property
    def is_large(self) -> bool:
        """Too much to be read, only to save a call of the system."""
        return self.size_bytes > _READ_RANGE_BYTES_MAX


class Exchange:
    """The upper half of `Connection`."""

    __slots__ = (
        "_dispatch",
        "_flush_soon",
        "_intake",
        "_is_reading",
        "_is_watching_write",
        "_out",
        "_own",
        "_recv_into",
        "_send",
        "_slots",
        "_stream",
        "_unsent_bytes",
        "again",
        "fetch_again",
        "head_end",
        "received_bytes",
        "sent_bytes",
        "was_active",
    )

    def __init__(self, stream: Stream, intake: Intake, dispatch: Callable[[Any, memoryview], Response | None]) -> None:
        self.again: dict[bytes, Callable[[memoryview], bytes | None]] = {}
        self.fetch_again: Callable[[memoryview], Response | None] | None = None
        self.head_end = _HEAD_AT
        self.received_bytes = 0
        self.sent_bytes = 0
        self.was_active = False  # since the server's sweep last looked
        self._dispatch = dispatch
        self._intake = intake
        self._is_reading = True
        self._is_watching_write = False
        self._out: deque[Any] = deque()  # buffers and file ranges
        self._own: memoryview | None = None
        self._recv_into = stream.recv_into
        self._send = stream.send
        self._slots: deque[Any] = deque()
        self._stream = stream
        self._unsent_bytes = 0
        self._flush_soon = self._flush_now

    def _on_readable(self) -> None:
        self.was_active = True
        try:
            if self._own is None:
                shared = self._intake.shared
                count = self._recv_into(shared)
                self.received_bytes += count
                if count >= _WHOLE_FRAME_BYTES_MIN and _UNPACK_SIZE(shared)[0] == count - 4:
                    response = self._dispatch(self, shared[4:count])
                    if response is not None:
                        self._answer(response)
                elif count:
                    self._take_shared(shared, count)
                else:
                    self.close(None)
            else:
                self._receive_own()
        except BlockingIOError:
            return
        except ConnectionBroken as broken:
            self._flush_now()  # the requests before the broken one get their answers
            self.close(str(broken))
            return
        except OSError:
            self.close(None)
            return
        if self._out and not self._is_watching_write:
            self._stream.after_reading(self._flush_soon)

    def _answer(self, response: Response) -> None:
        """Put an answer behind those that were owed before."""
        if type(response) is bytes and not self._slots:
            self._out.append(response)
            self._unsent_bytes += len(response)
            if self._unsent_bytes > _UNSENT_BYTES_MAX:
                self._update_reading()
        else:
            self._answer_in_turn(response)

    def _flush_now(self) -> None:
        """Send what is there to be sent, unless the socket was full before."""
        out = self._out
        if self._is_watching_write or not out:
            return
        if len(out) == 1 and type(out[0]) is bytes and self._is_reading:
            response = out[0]
            try:
                sent = self._send(response)
            except OSError:
                sent = 0  # the ordinary way will see it, too
            self._unsent_bytes -= sent
            self.sent_bytes += sent
            if sent == len(response):
                out.clear()
                return
            out[0] = memoryview(response)[sent:]
        self._flush()

    def _flush(self) -> None:
        """Send until the socket is full, then let the loop tell when to go on."""
        out = self._out
        try:
            while out:
                if len(out) > 1 and self._can_join(out[0], out[1]):
                    self._join_small()
                item = out[0]
                if type(item) is FileRange:
                    self._send_range(item)
                else:
                    self._send_buffer(item)
                if self._is_watching_write:
                    self._note_progress()
        except BlockingIOError:
            self._wait_for_room()
        except OSError:
            self.close(None)
        else:
            if self._is_watching_write or not self._is_reading:
                self._all_is_sent()

    def _can_join(self, first: Any, second: Any) -> bool:
        """Whether there is something to gain from looking: what stands before a large range leaves with it anyway."""
        if type(first) is FileRange:
            return not first.is_large
        return type(second) is not FileRange or not second.is_large

    def _send_range(self, wanted: FileRange) -> None:
        sent = self._stream.send_file(wanted.file, wanted.position, wanted.size_bytes)
        self.sent_bytes += sent
        if sent == wanted.size_bytes:
            self._out.popleft()
        elif sent:
            self._out[0] = FileRange(wanted.file, wanted.position + sent, wanted.size_bytes - sent)
        else:
            raise OSError("the file ended before the range that was to be sent")

    def _send_buffer(self, data: Any) -> None:
        out = self._out
        sent = self._stream.send_more(data) if len(out) > 1 else self._send(data)
        self._unsent_bytes -= sent
        self.sent_bytes += sent
        if sent == len(data):
            out.popleft()
        else:
            out[0] = memoryview(data)[sent:]

    # what `Connection` does

    def _all_is_sent(self) -> None:
        raise NotImplementedError

    def _join_small(self) -> None:
        raise NotImplementedError

    def _note_progress(self) -> None:
        raise NotImplementedError

    def _wait_for_room(self) -> None:
        raise NotImplementedError

    def close(self, reason: str | None) -> None:
        raise NotImplementedError

    def _answer_in_turn(self, response: Response) -> None:
        raise NotImplementedError

    def _receive_own(self) -> None:
        raise NotImplementedError

    def _take_shared(self, shared: memoryview, count: int) -> None:
        raise NotImplementedError

    def _update_reading(self) -> None:
        raise NotImplementedError


class FrameDispatch:
    """The upper half of `Dispatcher`."""

    __slots__ = ("again_count",)

    def __init__(self) -> None:
        self.again_count = 0  # requests like one before them

    def __call__(self, connection: Any, frame: memoryview) -> Response | None:
        exchange = connection
        again = exchange.again.get(frame[_HEAD_AT : exchange.head_end].tobytes())
        if again is not None:
            try:
                response = self.time_again(again, frame) if self.again_count & _TIMED_MASK == 0 else again(frame)
            except Exception:
                raise self._failed("a request like the one before it", connection) from None
            if response is not None:
                self.again_count += 1
                return response or None  # empty: it is answered later
        elif exchange.fetch_again is not None:
            try:
                fetched: Response | None = exchange.fetch_again(frame)
            except Exception:
                raise self._failed("a fetch like the one before it", connection) from None
            if fetched is not None:
                return fetched
        return self.route(connection, frame)

    # what `Dispatcher` does

    def time_again(self, again: Callable[[memoryview], bytes | None], frame: memoryview) -> bytes | None:
        raise NotImplementedError

    def route(self, connection: Any, frame: memoryview) -> Response | None:
        raise NotImplementedError

    def _failed(self, what: str, connection: Any) -> ConnectionBroken:
        raise NotImplementedError
