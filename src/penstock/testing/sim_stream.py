"""One simulated connection: two streams, and between them two pipes of packets that take their time.

A stream is both the socket and the kernel's side of it: after `close` it still answers what arrives, as a kernel would.
The rules are Linux TCP's as a program can see them: bytes arrive in order; a sender may have a bounded number of bytes
that its peer has not read yet; closing sends the end of the stream, or a reset when something was left unread; bytes
for a closed stream are answered with a reset; what arrived before a reset can still be read, then the error comes once.

Packets do not get lost while a link is cut or the peer's machine is off: they wait, as TCP's retransmissions do, until
the link is back or the sender gives up (ETIMEDOUT).
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from penstock.base.world import Address, Buffer, File
from penstock.testing.sim_links import Links

NEUTRAL = contextvars.Context()  # packets under way belong to no process


class Mark(Enum):
    """Packets without bytes."""

    END = "end of stream"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Read:
    """Tells the sender that so many of its bytes were read."""

    count: int


Packet = bytes | Mark | Read


def socket_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


class Watch:
    """A level-triggered callback: runs in its process, again and again, while the condition holds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, is_ready: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_ready = is_ready
        self._callback: Callable[[], None] | None = None
        self._context = NEUTRAL
        self._scheduled: asyncio.Handle | None = None

    def set(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback
        if callback is None:
            if self._scheduled is not None:
                self._scheduled.cancel()
                self._scheduled = None
        else:
            self._context = contextvars.copy_context()
            self.look()

    def look(self) -> None:
        """The condition may have become true."""
        if self._callback is not None and self._scheduled is None and self._is_ready():
            self._scheduled = self._loop.call_soon(self._fire, context=self._context)

    def _fire(self) -> None:
        self._scheduled = None
        if self._callback is not None and self._is_ready():
            try:
                self._callback()
            finally:
                self.look()


class Pipe:
    """One direction of a connection: packets in order, each delivered after the link's delay."""

    def __init__(self, links: Links, source: SimStream, target: SimStream) -> None:
        self._links = links
        self._loop = links.loop
        self._packets: deque[tuple[float, Packet]] = deque()
        self._last_at_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._stalled = False
        self.is_held = False  # one connection may have bad luck while others between the same machines have none
        self._source = source
        self._target = target

    def push(self, packet: Packet) -> None:
        delay_s = self._links.draw_delay_s(self._source.host, self._target.host)
        self._last_at_s = max(self._last_at_s, self._loop.time() + delay_s)
        self._packets.append((self._last_at_s, packet))
        if self._stalled:
            self._expect_to_give_up()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._last_at_s, self._deliver, context=NEUTRAL)

    def _deliver(self) -> None:
        self._timer = None
        while self._packets and self._packets[0][0] <= self._loop.time():
            if self.is_held or not self._links.is_open(self._source.host, self._target.host):
                self._stalled = True
                self._links.waiting[self] = None
                self._expect_to_give_up()
                return
            self._target.receive(self._packets.popleft()[1])
        if self._packets and self._timer is None:
            self._timer = self._loop.call_at(self._packets[0][0], self._deliver, context=NEUTRAL)

    def _expect_to_give_up(self) -> None:
        """Only what needs an answer is sent again and again, and given up at last."""
        if self._giving_up is None and any(not isinstance(packet, Read) for _, packet in self._packets):
            self._giving_up = self._loop.call_later(self._links.give_up_s, self._give_up, context=NEUTRAL)

    def _give_up(self) -> None:
        self.drop()
        self._source.abort(errno.ETIMEDOUT)

    def retry(self) -> None:
        """The link may be open again."""
        self._end_stall()
        if self._timer is None and self._packets:
            delay_s = self._links.draw_delay_s(self._source.host, self._target.host)
            self._timer = self._loop.call_later(delay_s, self._deliver, context=NEUTRAL)

    def hold(self) -> None:
        """Nothing is delivered until `let_go`; the sender does not notice."""
        self.is_held = True

    def let_go(self) -> None:
        self.is_held = False
        self.retry()

    def drop(self) -> None:
        """Forget what is under way."""
        self._packets.clear()
        self._links.waiting.pop(self, None)
        self._end_stall()

    def _end_stall(self) -> None:
        self._stalled = False
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None


class SimStream:
    """One end of a simulated connection."""

    def __init__(self, links: Links, host: str, local: Address, peer: Address) -> None:
        self.local = local
        self.peer = peer
        self.host = host
        self.pipe: Pipe | None = None
        self.on_closed: Callable[[], None] | None = None
        self._links = links
        self._received = bytearray()
        self._unread_by_peer = 0
        self._ended = False
        self._aborted = False
        self._error: int | None = None
        self._closed = False
        self._gone = False
        self._readable = Watch(self._links.loop, self._is_readable)
        self._writable = Watch(self._links.loop, self._is_writable)

    # What the program calls

    def recv_into(self, buffer: Buffer) -> int:
        self._check_open()
        view = memoryview(buffer)
        if not view.nbytes:
            return 0
        if not self._received:
            return self._nothing_received()
        count = self._links.draw_part(min(view.nbytes, len(self._received)))
        view[:count] = memoryview(self._received)[:count]
        del self._received[:count]
        self._push(Read(count))
        return count

    def _nothing_received(self) -> int:
        if self._ended:
            return 0
        self._raise_error()
        if self._aborted:
            return 0
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def send(self, data: Buffer) -> int:
        room = self._check_room()
        content = bytes(memoryview(data)[:room])
        count = self._links.draw_part(len(content))
        self._send(content[:count])
        return count

    def send_more(self, data: Buffer) -> int:
        return self.send(data)

    def send_file(self, file: File, offset: int, count: int) -> int:
        room = self._check_room()
        content = file.read(min(count, room), offset)
        sent = self._links.draw_part(len(content))
        self._send(content[:sent])
        return sent

    def _check_room(self) -> int:
        """How much can be sent now, at least one byte."""
        self._check_open()
        self._raise_error()
        if self._aborted:
            raise socket_error(errno.EPIPE)
        room = self._room()
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return room

    def _send(self, content: bytes) -> None:
        if content:
            self._unread_by_peer += len(content)
            self._push(content)

    def watch_read(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._check_open()
        self._readable.set(callback)

    def after_reading(self, callback: Callable[[], None]) -> None:
        self._links.loop.call_soon(callback)

    def watch_write(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._check_open()
        self._writable.set(callback)

    def close(self) -> None:
        if not self._closed:
            self._links.trace(f"{self} closes")
            self._end_use()
            if not self._aborted:
                self._push(Mark.RESET if self._received else Mark.END)

    def refuse(self) -> None:
        """Close with a reset, as a listener that ends does to what it has not accepted yet."""
        if not self._closed:
            self._end_use()
            self._push(Mark.RESET)

    # What the kernel does

    def _check_open(self) -> None:
        if self._closed:
            raise socket_error(errno.EBADF)

    def _raise_error(self) -> None:
        if self._error is not None:
            code, self._error = self._error, None
            raise socket_error(code)

    def _room(self) -> int:
        return self._links.buffer_bytes - self._unread_by_peer

    def _is_readable(self) -> bool:
        return bool(self._received) or self._ended or self._aborted

    def _is_writable(self) -> bool:
        return self._aborted or self._room() > 0

    def _push(self, packet: Packet) -> None:
        if self.pipe is not None and not self._gone:
            self.pipe.push(packet)

    def receive(self, packet: Packet) -> None:
        """A packet arrives."""
        if isinstance(packet, Read):
            self._unread_by_peer -= packet.count
            self._writable.look()
        elif packet is Mark.RESET:
            self.abort(errno.EPIPE if self._ended else errno.ECONNRESET)
        elif self._closed or self._aborted:
            self._answer_stray(packet)
        elif isinstance(packet, bytes):
            self._links.trace(f"{self} receives {len(packet)} bytes")
            self._received += packet
            self._readable.look()
        else:
            self._links.trace(f"{self} receives the end")
            self._ended = True
            self._readable.look()

    def _answer_stray(self, packet: Packet) -> None:
        if self.pipe is not None and (isinstance(packet, bytes) or self._gone):
            self.pipe.push(Mark.RESET)

    def abort(self, code: int) -> None:
        """The connection is over; the program learns it from its next call."""
        if not self._closed and not self._aborted:
            self._links.trace(f"{self} is aborted: {errno.errorcode[code]}")
            self._aborted = True
            self._error = code
            if self.pipe is not None:
                self.pipe.drop()
            self._readable.look()
            self._writable.look()

    def vanish(self) -> None:
        """The machine lost power: nothing is sent, and nothing remembered of the connection."""
        self._end_use()
        self._gone = True
        if self.pipe is not None:
            self.pipe.drop()

    def _end_use(self) -> None:
        self._closed = True
        self._readable.set(None)
        self._writable.set(None)
        if self.on_closed is not None:
            self.on_closed()

    def __str__(self) -> str:
        return f"{self.local} (peer {self.peer})"


def join(links: Links, one: SimStream, other: SimStream) -> None:
    """Make the two streams the ends of one connection."""
    one.pipe = Pipe(links, one, other)
    other.pipe = Pipe(links, other, one)
