"""A follower's connection to its leader: requests out, answers in, each handed over in the buffer it was received into.

Answers come in the order of the requests. The buffer grows with the bytes that arrive, is filled exactly to the end of
a large answer, and is used again for the next one, so that the records in an answer are copied only to the disk. One
answer is handed over at a time; it is the receiver's until `done`. Who needs its bytes still longer says `keep_buffer`:
then the next one gets another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from penstock.base.world import Clock, Stream
from penstock.wire.api_declaration import Api
from penstock.wire.codec import decode, encode_into
from penstock.wire.headers import RequestHeader, decode_response_header, encode_request_header
from penstock.wire.schema import Message, ProtocolError

logger = logging.getLogger(__name__)

FIRST_BUFFER_BYTES = 64 * 1024
BUFFER_KEPT_BYTES_MAX = 32 * 1024 * 1024
ANSWER_BYTES_MAX = 1 << 30
_ANSWER_BYTES_MIN = 4  # the correlation id

_SIZE = Struct(">i")


class LinkEnded(Exception):
    """The connection is over; the text says why."""


Take = Callable[[memoryview, int], None]
"""Gets an answer, and where its message begins; calls `done` when it is worked off."""


class _Expected(NamedTuple):
    api: Api
    version: int
    number: int
    take: Take


class FollowerLink:
    """See the head of this file. `over` is done when the connection is; its result is the reason."""

    def __init__(self, stream: Stream, clock: Clock, client_id: str) -> None:
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stream = stream
        self._clock = clock
        self._client_id = client_id
        self._expected: deque[_Expected] = deque()
        self._last_number = 0
        self._heard_s = clock.monotonic()  # when something came, or was asked while nothing else was
        self._unsent = bytearray()
        self._waits_for_room = False
        self._buffer = memoryview(bytearray(FIRST_BUFFER_BYTES))
        self._filled = 0
        self._limit = FIRST_BUFFER_BYTES  # up to where it is filled now: no further than a large answer that has begun
        self._answer_end = 0  # of the one that is handed over; 0 while none is
        self._is_kept = False
        self._is_taking = False
        self._is_reading = True
        stream.watch_read(self._readable)

    @property
    def is_over(self) -> bool:
        return self.over.done()

    def end(self, reason: str) -> None:
        if not self.over.done():
            self.over.set_result(reason)
            self._stream.watch_read(None)
            self._stream.watch_write(None)
            self._stream.close()
            self._unsent.clear()
            self._expected.clear()

    @property
    def silent_s(self) -> float:
        """For how long an answer has been due, and not a byte has come."""
        return self._clock.monotonic() - self._heard_s if self._expected else 0.0

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def request(self, api: Api, version: int, message: Message, take: Take) -> None:
        """Send a request; its answer is given to `take`, or never if the connection ends before."""
        if self.is_over:
            return
        if not self._expected:
            self._heard_s = self._clock.monotonic()
        self._last_number = number = (self._last_number + 1) & 0x7FFFFFFF
        frame = bytearray(4)
        encode_request_header(RequestHeader(api.key, version, number, self._client_id), frame)
        encode_into(message, version, frame)
        _SIZE.pack_into(frame, 0, len(frame) - 4)
        self._expected.append(_Expected(api, version, number, take))
        self._send(frame)

    async def ask(self, api: Api, version: int, message: Message) -> Any:
        """The answer to a request; LinkEnded if it does not come."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def take(frame: memoryview, position: int) -> None:
            response, _ = decode(api.response, version, frame, position)
            if not answered.done():
                answered.set_result(response)
            self.done()

        self.request(api, version, message, take)
        await asyncio.wait((answered, self.over), return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            raise LinkEnded(self.over.result())
        return answered.result()

    def _send(self, frame: bytearray) -> None:
        self._unsent += frame
        if not self._waits_for_room:
            self._send_unsent()

    def _send_unsent(self) -> None:
        try:
            while self._unsent:
                sent = self._stream.send(bytes(self._unsent))
                del self._unsent[:sent]
        except BlockingIOError:
            if not self._waits_for_room:
                self._waits_for_room = True
                self._stream.watch_write(self._send_unsent)
            return
        except OSError as error:
            self.end(f"the connection broke: {error.strerror or error}")
            return
        if self._waits_for_room:
            self._waits_for_room = False
            self._stream.watch_write(None)

    # ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────

    def _readable(self) -> None:
        try:
            count = self._stream.recv_into(self._buffer[self._filled : self._limit])
        except BlockingIOError:
            return
        except OSError as error:
            self.end(f"the connection broke: {error.strerror or error}")
            return
        if not count:
            self.end("the leader closed the connection")
            return
        self._filled += count
        self._heard_s = self._clock.monotonic()
        self._take()

    def _take(self) -> None:
        """Hand over whole answers, one after the other, as long as they are worked off at once."""
        self._is_taking = True
        try:
            while not self.is_over and not self._answer_end and self._filled >= 4:
                (size,) = _SIZE.unpack_from(self._buffer)
                if not _ANSWER_BYTES_MIN <= size <= ANSWER_BYTES_MAX:
                    raise ProtocolError(f"{size} bytes")
                if self._filled < 4 + size:
                    self._make_room(4 + size)
                    break
                self._answer_end = 4 + size
                self._hand_over(self._buffer[4 : 4 + size])
        except ProtocolError as error:
            self.end(f"an answer that cannot be read: {error}")
        except Exception as error:  # a bug of ours, which must not leave a connection that nobody reads from
            logger.exception("an answer of %s could not be taken", self._stream.peer)
            self.end(f"an answer that could not be taken: {error}")
        self._is_taking = False
        self._watch(self._answer_end == 0)

    def _hand_over(self, frame: memoryview) -> None:
        if not self._expected:
            raise ProtocolError("nothing was asked")
        expected = self._expected.popleft()
        number, position = decode_response_header(expected.api.key, expected.version, frame)
        if number != expected.number:
            raise ProtocolError(f"it answers {number} where {expected.number} is due")
        expected.take(frame, position)

    def _make_room(self, needs: int) -> None:
        """For an unfinished answer that begins the buffer."""
        if self._filled == len(self._buffer):
            grown = memoryview(bytearray(min(needs, 2 * self._filled)))
            grown[: self._filled] = self._buffer[: self._filled]
            self._buffer = grown
        self._limit = min(needs, len(self._buffer))

    def keep_buffer(self) -> None:
        """The bytes of the answer that is handed over are needed after `done`."""
        self._is_kept = True

    def done(self) -> None:
        """The answer that was handed over is worked off: there may be the next one."""
        rest = self._buffer[self._answer_end : self._filled]
        is_large = len(self._buffer) > BUFFER_KEPT_BYTES_MAX
        if self._is_kept or is_large:
            self._buffer = memoryview(bytearray(max(FIRST_BUFFER_BYTES, len(rest))))
            self._is_kept = False
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)
        self._limit = len(rest) + FIRST_BUFFER_BYTES
        self._answer_end = 0
        if not self._is_taking:
            self._take()

    def _watch(self, is_wanted: bool) -> None:
        if is_wanted != self._is_reading and not self.is_over:
            self._is_reading = is_wanted
            self._stream.watch_read(self._readable if is_wanted else None)
