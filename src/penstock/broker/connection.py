"""One client's connection: bytes in, whole frames to the dispatcher, responses out in the order of their requests.

Receiving. An idle connection owns no buffer: all connections of a server receive into one shared buffer, and what
arrives as whole frames is handled right there. Only the beginning of an unfinished frame moves into a buffer of the
connection's own, which grows with the bytes that really arrived (never by what a frame claims) and is then filled
exactly to the end of that frame, so that nothing of the next one has to be moved. A large buffer is kept for the next
large frame.

Answering. A handler returns its response, or reserves a `Slot` and fills it later; slots leave in order. A handler that
still needs the bytes of its request *holds* the connection: nothing more is read until it releases it. What is answered
at once leaves when all connections that had something to read have been read.

Everything is bounded: the frame, the slots, the responses not yet taken by the peer, and the time that an unfinished
frame or an unread response may take (`is_overdue`, asked by the server's sweep).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Protocol, TypeAlias

from penstock.base.world import Buffer, Clock, Stream
from penstock.broker._exchange import READ_RANGE_BYTES_MAX as READ_RANGE_BYTES_MAX
from penstock.broker._exchange import UNSENT_BYTES_MAX as UNSENT_BYTES_MAX
from penstock.broker._exchange import ConnectionBroken as ConnectionBroken
from penstock.broker._exchange import Exchange
from penstock.broker._exchange import FileRange as FileRange
from penstock.broker.intake import SHARED_BUFFER_BYTES as SHARED_BUFFER_BYTES
from penstock.broker.intake import Intake as Intake
from penstock.broker.request_counts import ApiCounts
from penstock.security.allowance import Allowance
from penstock.security.principal import ANONYMOUS

OWN_BUFFER_KEPT_BYTES_MAX = 4 * 1024 * 1024
SLOTS_MAX = 128
REMEMBERED_MAX = 128
JOINED_SEND_BYTES_MAX = 64 * 1024
FRAME_BYTES_PER_S_MIN = 64 * 1024

_SIZE = Struct(">i")
_UNPACK_SIZE = _SIZE.unpack_from
FRAME_BYTES_MIN = 8  # api key, version, correlation id


Response: TypeAlias = bytes | bytearray | list[bytearray | FileRange] | list[bytes | FileRange]


class Slot:
    """The place of one answer in a connection's order; an answer of None means that none is sent."""

    __slots__ = ("counts", "is_filled", "on_cancel", "response", "started_s")

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self.is_filled = False
        self.response: Response | None = None
        self.on_cancel = on_cancel
        self.counts: ApiCounts | None = None  # where the request is counted when its answer is there
        self.started_s = 0.0


class ConnectionLogin(Protocol):
    """How a connection's peer shows who it is, on a listener that asks for it."""

    def check(self, now: float) -> None:
        """Called by the server's sweep: a login may have ended."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the peer was known once, and has to log in again before it gets anything."""
        ...


Dispatch: TypeAlias = "Callable[[Connection, memoryview], Response | None]"


class Connection(Exchange):
    """See the head of this file. `dispatch` is called once for each whole frame."""

    __slots__ = (
        "_clock",
        "_end",
        "_frame_needs",
        "_frame_started",
        "_holds",
        "_muted",
        "_on_close",
        "_start",
        "_throttle",
        "_unsent_since",
        "_waits_for_budget",
        "allowance",
        "began_s",
        "client_id",
        "due_s",
        "follows",
        "frame_bytes_max",
        "frame_bytes_min",
        "is_closed",
        "last_active",
        "listener_name",
        "login",
        "peer",
        "principal",
    )

    _out: deque[Buffer | FileRange]
    _slots: deque[Slot]

    def __init__(
        self,
        stream: Stream,
        listener_name: str,
        intake: Intake,
        clock: Clock,
        dispatch: Dispatch,
        on_close: Callable[[Connection, str | None], None],
    ) -> None:
        super().__init__(stream, intake, dispatch)
        self.peer = stream.peer
        self.listener_name = listener_name
        self.client_id: str | None = None
        self.principal = ANONYMOUS  # until a certificate or a login says otherwise
        self.login: ConnectionLogin | None = None  # on listeners that ask for one
        self.due_s: float | None = None  # by when the peer must have shown who it is
        self.frame_bytes_min, self.frame_bytes_max = FRAME_BYTES_MIN, intake.frame_bytes_max
        self.is_closed = False
        self.began_s = self.last_active = clock.monotonic()
        self._clock = clock
        self._on_close = on_close
        self._start = self._end = 0  # the bytes in the own buffer that are not handled yet
        self._frame_needs = 0  # size of the unfinished frame with its prefix, 0 while unknown
        self._frame_started: float | None = None
        self._unsent_since: float | None = None
        self._holds = 0
        self._muted = False
        self._throttle: asyncio.TimerHandle | None = None  # until when a client over its quota is not read from
        self._waits_for_budget = False
        self.follows = False  # its last fetch was that of a follower, and one that may
        self.allowance: Allowance | None = None  # what counts for this client, once somebody has looked
        stream.watch_read(self._on_readable)

    # ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────

    def _receive_own(self) -> None:
        own = self._own
        assert own is not None
        limit = self._frame_needs or min(len(own), self._end + SHARED_BUFFER_BYTES)
        count = self._recv_into(own[self._end : limit])
        self.received_bytes += count
        self._end += count
        if count:
            self._take_own()
        else:
            self.close(None)

    def _take_shared(self, shared: memoryview, count: int) -> None:
        position = self._handle_frames(shared, 0, count)
        if self.is_closed:
            return
        if self._own is not None:  # a handler holds the request: the buffer is ours now
            self._start, self._end = position, count
        elif position < count:
            self._keep_unfinished(shared[position:count])

    def _take_own(self) -> None:
        own = self._own
        assert own is not None
        self._start = self._handle_frames(own, self._start, self._end)
        if self.is_closed or self._holds:
            return
        if self._start == self._end:
            self._start = self._end = self._frame_needs = 0
            self._frame_started = None
            self._intake.frame_ended(self)
            if not SHARED_BUFFER_BYTES < len(own) <= OWN_BUFFER_KEPT_BYTES_MAX or self._intake.is_short:
                self._drop_own()
        elif self._is_reading:
            self._make_room()

    def _handle_frames(self, view: memoryview, position: int, end: int) -> int:
        """Dispatch the whole frames between two positions; returns where the first unfinished one begins."""
        while end - position >= 4 and self._is_reading:
            (size,) = _SIZE.unpack_from(view, position)
            if not self.frame_bytes_min <= size <= self.frame_bytes_max:
                raise self._wrong_size(size)
            frame_end = position + 4 + size
            if frame_end > end:
                break
            frame = view[position + 4 : frame_end]
            position = frame_end
            self._frame_needs = 0
            response = self._dispatch(self, frame)
            if response is not None:
                self._answer(response)
            if self.is_closed:
                break
        return position

    def _wrong_size(self, size: int) -> ConnectionBroken:
        return ConnectionBroken(
            f"a frame of {size} bytes (allowed: {self.frame_bytes_min} to {self.frame_bytes_max})"
            + ("" if self.due_s is None else " before the login")
        )

    def dispatch_with(self, dispatch: Dispatch) -> None:
        """From now on requests go there."""
        self._dispatch = dispatch

    def _keep_unfinished(self, part: memoryview) -> None:
        """Move the beginning of a frame from the shared buffer into a buffer of our own."""
        own = memoryview(bytearray(max(2 * len(part), 4096)))
        own[: len(part)] = part
        self._own = own
        self._intake.owned_bytes += len(own)
        self._start, self._end = 0, len(part)
        self._frame_started = self._clock.monotonic()
        if self._is_reading:
            self._make_room()

    def _make_room(self) -> None:
        """Let the unfinished frame at `_start` go on: move it to the buffer's beginning, with space behind it."""
        own = self._own
        assert own is not None
        have = self._end - self._start
        if self._frame_started is None or self._start:
            self._frame_started = self._clock.monotonic()
        if self._start:
            own[:have] = own[self._start : self._end]
            self._start, self._end = 0, have
        if have < 4:
            self._frame_needs = 0
            return
        (size,) = _SIZE.unpack_from(own, 0)
        if not self.frame_bytes_min <= size <= self.frame_bytes_max:
            raise self._wrong_size(size)
        needs = size + 4
        if have == len(own):
            capacity = min(needs, 2 * have)
            if not self._intake.may_grow(self, capacity - have):
                self._wait_for_budget()
                return
            self._grow(capacity)
            own = self._own
            assert own is not None
        self._frame_needs = min(needs, len(own))

    def _grow(self, capacity: int) -> None:
        assert self._own is not None
        grown = memoryview(bytearray(capacity))
        grown[: self._end] = self._own[: self._end]
        self._intake.owned_bytes += capacity - len(self._own)
        self._own = grown

    def _wait_for_budget(self) -> None:
        self._waits_for_budget = True
        self._update_reading()
        self._intake.waiting.append(self._budget_is_free)

    def _budget_is_free(self) -> None:
        if not self.is_closed:
            self._waits_for_budget = False
            self.was_active = True  # it stood still by our own wish
            self._make_room()
            self._update_reading()

    def _drop_own(self) -> None:
        if self._own is not None:
            size_bytes, self._own = len(self._own), None
            self._intake.release(size_bytes)

    def _update_reading(self) -> None:
        """Read only while there is room for what a request may cause."""
        may_read = not (
            self._holds
            or self._muted
            or self._throttle is not None
            or self._waits_for_budget
            or len(self._slots) >= SLOTS_MAX
            or self._unsent_bytes > UNSENT_BYTES_MAX
        )
        if may_read != self._is_reading and not self.is_closed:
            self._is_reading = may_read
            self._stream.watch_read(self._on_readable if may_read else None)

    def _resume(self) -> None:
        """After a reason to pause has gone: first the frames that are here already, then the socket."""
        if self.is_closed or self._is_reading:
            return
        self._update_reading()
        if self._is_reading and self._own is not None:
            try:
                self._take_own()
            except ConnectionBroken as broken:
                self.close(str(broken))
                return
            self._flush_now()

    # ── for handlers ─────────────────────────────────────────────────────────────────────────────────────────────

    def reserve(self, on_cancel: Callable[[], None] | None = None) -> Slot:
        """A place in the order of answers, to be filled with `fill`; `on_cancel` is called if the peer goes before."""
        slot = Slot(on_cancel)
        self.add_slot(slot)
        return slot

    def add_slot(self, slot: Slot) -> None:
        """The next place in the order of answers is this one."""
        self._slots.append(slot)
        if len(self._slots) >= SLOTS_MAX:
            self._update_reading()

    def fill(self, slot: Slot, response: Response | None) -> None:
        """Answer a reserved place; sends it as soon as everything before it is answered."""
        self._take_answer(slot, response)
        if not self.is_closed:
            self._flush_now()
            if not self._is_reading:
                self._resume()

    def fill_soon(self, slot: Slot, response: Response | None) -> None:
        """The same for one of many that are answered together: what goes to one client leaves in one piece."""
        was_idle = not self._out
        self._take_answer(slot, response)
        if self._out:
            if was_idle:
                self._stream.after_reading(self._flush_soon)
        elif not self._is_reading:
            self._resume()

    def _take_answer(self, slot: Slot, response: Response | None) -> None:
        slot.response = response
        slot.is_filled = True
        if slot.counts is not None:
            slot.counts.ended(slot.started_s)
        slots = self._slots
        while slots and slots[0].is_filled:
            ready = slots.popleft().response
            if ready is not None:
                self._queue(ready)

    def count_when_answered(self, counts: ApiCounts, started_s: float) -> None:
        """The request just handled has no answer yet, or will have none: count it when it is done with."""
        slot = self._slots[-1] if self._slots else None
        if slot is None or slot.is_filled or slot.counts is not None:  # the place is not its own
            counts.ended(started_s)
        else:
            slot.counts, slot.started_s = counts, started_s

    def remember(self, head_end: int, head: bytes, again: Callable[[memoryview], bytes | None]) -> None:
        """Handle requests that begin like this one, from after their correlation id to `head_end`, with `again`.

        It returns None, with nothing done, for a request that is not like that after all.
        """
        if head_end != self.head_end or len(self.again) >= REMEMBERED_MAX:
            self.again.clear()
            self.head_end = head_end
        self.again[head] = again

    def forget_shortcuts(self) -> None:
        """Every request goes the ordinary way again, the first time."""
        self.again.clear()
        self.fetch_again = None

    def hold(self) -> None:
        """The bytes of the request being handled are needed after its handler has returned."""
        if self._own is None:
            self._own = self._intake.hand_over_shared()
            self._intake.owned_bytes += len(self._own)
        self._holds += 1
        self._update_reading()

    def release(self) -> None:
        """The end of a `hold`."""
        self._holds -= 1
        if not self._holds:
            self._resume()

    def mute(self, muted: bool) -> None:
        """Stop or go on reading from this client."""
        self._muted = muted
        if muted:
            self._update_reading()
        else:
            self._resume()

    @property
    def is_throttled(self) -> bool:
        return self._throttle is not None

    def throttle(self, seconds: float) -> None:
        """Do not read for so long from a client that is over its quota; its answers are sent all the same."""
        loop = asyncio.get_running_loop()
        if self.is_closed or (self._throttle is not None and self._throttle.when() >= loop.time() + seconds):
            return
        if self._throttle is not None:
            self._throttle.cancel()
        self._throttle = loop.call_later(seconds, self._throttle_is_over)
        self._update_reading()

    def _throttle_is_over(self) -> None:
        self._throttle = None
        self.was_active = True  # it stood still by our own wish, as did the frame that may have begun
        if self._frame_started is not None:
            self._frame_started = self._clock.monotonic()
        self._resume()

    # ── sending ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer_in_turn(self, response: Response) -> None:
        if self._slots:
            slot = Slot()
            slot.response = response
            slot.is_filled = True
            self.add_slot(slot)
        else:
            self._queue(response)

    def _queue(self, response: Response) -> None:
        if type(response) is list:
            for part in response:
                self._out.append(part)
                if type(part) is not FileRange:
                    self._unsent_bytes += len(part)  # type: ignore[arg-type]
        else:
            self._out.append(response)  # type: ignore[arg-type]
            self._unsent_bytes += len(response)
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            self._update_reading()

    def _note_progress(self) -> None:
        self._unsent_since = self._clock.monotonic()

    def _wait_for_room(self) -> None:
        """The socket is full: let the loop tell when to go on."""
        if not self._is_watching_write:
            self._is_watching_write = True
            self._unsent_since = self._clock.monotonic()
            self._stream.watch_write(self._on_writable)
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            self._update_reading()

    def _all_is_sent(self) -> None:
        if self._is_watching_write:
            self._is_watching_write = False
            self._unsent_since = None
            self._stream.watch_write(None)
        if not self._is_reading:
            self._resume()

    def _on_writable(self) -> None:
        self._flush()

    def _join_small(self) -> None:
        """Several small answers leave in one call. A small range of a file is read for that: three calls would wake
        whoever waits for the answer twice, first with a part of it."""
        out = self._out
        parts: list[Buffer] = []
        size_bytes = 0
        while out and size_bytes < JOINED_SEND_BYTES_MAX:
            part = out[0]
            if type(part) is FileRange:
                if part.is_large:
                    break
                part = self._read(part)
            out.popleft()
            parts.append(part)  # type: ignore[arg-type]
            size_bytes += len(part)  # type: ignore[arg-type]
        if parts:
            out.appendleft(parts[0] if len(parts) == 1 else b"".join(parts))

    def _read(self, wanted: FileRange) -> bytes:
        found = wanted.file.read(wanted.size_bytes, wanted.position)
        if len(found) != wanted.size_bytes:
            raise OSError("the file ended before the range that was to be sent")
        self._unsent_bytes += len(found)
        return found

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def is_overdue(self, now: float, timeout_s: float) -> str | None:
        """Why the server should give this connection up, or None. Also lets go of a large buffer not used of late.

        A large frame has more time, at a rate that every network has; answers only have to make some progress.
        """
        if self.due_s is not None and now > self.due_s:
            return "a peer that did not say in time who it is"
        if self._frame_started is not None and (self._is_reading or self._waits_for_budget):
            allowed_s = timeout_s + self._frame_needs / FRAME_BYTES_PER_S_MIN
            if now - self._frame_started > allowed_s:
                return "a request that did not end in time"
        if self._unsent_since is not None and now - self._unsent_since > timeout_s:
            return "answers that were not taken in time"
        if self._own is not None and self._end == 0 and not self._holds and self._frame_started is None:
            self._drop_own()
        return None

    @property
    def is_stalled(self) -> bool:
        """The peer owes the rest of a request."""
        return self._frame_started is not None and self._is_reading

    @property
    def is_idle(self) -> bool:
        """Nothing is under way in either direction."""
        return not (self._slots or self._out or self._holds or self._frame_started is not None)

    @property
    def owes_answer(self) -> bool:
        """A request is still to be answered; one that only waits for news does not count."""
        return bool(self._out or self._holds) or any(slot.on_cancel is None for slot in self._slots)

    def close(self, reason: str | None) -> None:
        """End the connection; a reason is given when it was the peer's fault or the server's wish."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
        self._stream.close()
        self._out.clear()
        self.forget_shortcuts()
        for slot in self._slots:
            if slot.on_cancel is not None and not slot.is_filled:
                slot.on_cancel()
        self._slots.clear()
        self._intake.frame_ended(self)
        if not self._holds:
            self._drop_own()
        elif self._own is not None:
            self._intake.release(len(self._own))
            self._own = None
        self._on_close(self, reason)
