"""One connection to another broker: requests go out as they come, answers come back in the same order.

Small answers are received into one buffer of the link and copied out of it. A large one, as of a fetch, gets a buffer
of its own, which begins with the size of the largest so far, grows with the bytes that arrive, and is filled exactly to
its end: the records in the answer are slices of it, and live as long as somebody holds them.

An answer that nobody waits for any more stands before those of later requests, and perhaps will never come. So a link
that was given up by one is used by nobody else, and ends when the others have their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from penstock.base.world import Stream
from penstock.wire.api_declaration import Api
from penstock.wire.codec import decoder, encoder
from penstock.wire.headers import RequestHeader, decode_response_header, encode_request_header
from penstock.wire.schema import Message, ProtocolError

IN_FLIGHT_MAX = 100  # fewer than a broker works on for one connection
RECEIVE_BYTES = 64 * 1024
SEND_BYTES = 256 * 1024

_SIZE = Struct(">i")
_CORRELATION_ID = Struct(">i")
_ANSWER_BYTES_MIN = 4  # the correlation id


class LinkEnded(Exception):
    """The connection is over, and the answer will not come; the text says why."""


class _Waiting(NamedTuple):
    api: Api
    version: int
    answer: asyncio.Future[Any]


class PeerLink:
    """See the head of this file. `on_end` is called once, when the connection is over."""

    def __init__(
        self, stream: Stream, client_id: str, answer_bytes_max: int, on_end: Callable[[PeerLink], None]
    ) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        """The lowest and highest version of each API that the other broker serves, once it was asked."""
        self.ended: str | None = None
        self._is_given_up = False
        self._stream = stream
        self._client_id = client_id
        self._answer_bytes_max = answer_bytes_max
        self._on_end = on_end
        self._waiting: dict[int, _Waiting] = {}
        self._last_number = 0
        self._unsent = bytearray()
        self._waits_for_room = False
        self._small = memoryview(bytearray(RECEIVE_BYTES))
        self._large = bytearray()  # the unfinished answer, from its correlation id on
        self._largest = RECEIVE_BYTES  # of the answers so far: so much is believed at once of what one says of its size
        self._large_needs = 0  # its size; 0 while the small buffer is received into
        self._filled = 0  # of the buffer that is received into
        stream.watch_read(self._readable)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def is_usable(self) -> bool:
        """Whether the next request may go here."""
        return self.ended is None and not self._is_given_up and len(self._waiting) < IN_FLIGHT_MAX

    async def ask(self, api: Api, version: int, request: Message) -> Any:
        """The answer to a request; LinkEnded if it does not come. Whoever stops waiting gives the link up."""
        if self.ended is not None:
            raise LinkEnded(self.ended)
        self._last_number = number = (self._last_number + 1) & 0x7FFFFFFF
        frame = bytearray(4)
        encode_request_header(RequestHeader(api.key, version, number, self._client_id), frame)
        encoder(type(request), version)(request, frame)
        _SIZE.pack_into(frame, 0, len(frame) - 4)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Waiting(api, version, answer)
        self._send(frame)
        try:
            return await answer
        except asyncio.CancelledError:
            self._waiting.pop(number, None)
            self._is_given_up = True
            self._end_if_idle()
            raise

    def _end_if_idle(self) -> None:
        if self._is_given_up and not self._waiting:
            self.end("it was given up")

    # ── sending ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, frame: bytearray) -> None:
        self._unsent += frame
        if not self._waits_for_room:
            self._send_unsent()

    def _send_unsent(self) -> None:
        try:
            while self._unsent:
                sent = self._stream.send(bytes(self._unsent[:SEND_BYTES]))
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
            count = self._receive()
        except BlockingIOError:
            return
        except OSError as error:
            self.end(f"the connection broke: {error.strerror or error}")
            return
        if not count:
            self.end("the other end closed the connection")
            return
        self._filled += count
        try:
            self._take_answers()
        except ProtocolError as error:
            self.end(f"an answer that cannot be read: {error}")

    def _receive(self) -> int:
        if self._large_needs:
            return self._stream.recv_into(memoryview(self._large)[self._filled :])
        return self._stream.recv_into(self._small[self._filled :])

    def _take_answers(self) -> None:
        if not self._large_needs:
            self._take_small()
        elif self._filled == self._large_needs:
            answer, self._large = self._large, bytearray()
            self._largest = max(self._largest, len(answer))
            self._large_needs = self._filled = 0
            self._take_answer(memoryview(answer))
        elif self._filled == len(self._large):
            self._large += bytes(min(self._filled, self._large_needs - self._filled))

    def _take_small(self) -> None:
        """Take the whole answers out of the small buffer, and begin the large one with an unfinished rest."""
        start, end = 0, self._filled
        while end - start >= 4 and self.ended is None:
            (size,) = _SIZE.unpack_from(self._small, start)
            if not _ANSWER_BYTES_MIN <= size <= self._answer_bytes_max:
                raise ProtocolError(f"{size} bytes, where at most {self._answer_bytes_max} are taken")
            start += 4
            if end - start < size:
                self._begin_large(self._small[start:end], size)
                return
            self._take_answer(memoryview(bytes(self._small[start : start + size])))
            start += size
        self._small[: end - start] = self._small[start:end]
        self._filled = end - start

    def _begin_large(self, beginning: memoryview, size: int) -> None:
        self._large = bytearray(min(size, max(self._largest, 2 * len(beginning))))
        self._large[: len(beginning)] = beginning
        self._large_needs, self._filled = size, len(beginning)

    def _take_answer(self, frame: memoryview) -> None:
        (number,) = _CORRELATION_ID.unpack_from(frame)
        waiting = self._waiting.get(number)
        if waiting is not None:
            _, position = decode_response_header(waiting.api.key, waiting.version, frame)
            response, _ = decoder(waiting.api.response, waiting.version)(frame, position)
            del self._waiting[number]  # not before: who waits must hear that the answer cannot be read
            if not waiting.answer.done():
                waiting.answer.set_result(response)
        elif not self._is_given_up:
            raise ProtocolError(f"it answers {number}, which was not asked")
        self._end_if_idle()

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def end(self, reason: str) -> None:
        """Close the connection; whoever waits hears why."""
        if self.ended is not None:
            return
        self.ended = reason
        self._stream.watch_read(None)
        self._stream.watch_write(None)
        self._stream.close()
        self._unsent.clear()
        self._large = bytearray()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            if not each.answer.done():
                each.answer.set_exception(LinkEnded(reason))
        self._on_end(self)
