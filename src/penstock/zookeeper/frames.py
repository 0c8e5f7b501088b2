"""One connection that carries frames: an int32 size, then so many bytes. Both ends of ZooKeeper's protocol use it.

It holds no more than one frame that is not whole, what arrived with it, and what the peer has not read yet: whoever
uses it stops reading (`pause`) while it has enough to do, and stops producing while `unsent_bytes` is high, until
`on_drained` is called. A peer that never reads is given up.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.world import Buffer, Stream

RECEIVE_BYTES = 64 * 1024
UNSENT_BYTES_MAX = 64 << 20  # of a peer that does not read


class FrameStream:
    """Calls `on_frame` for each frame that arrives, and `on_end` once when the connection is over, by whomever."""

    def __init__(
        self,
        stream: Stream,
        on_frame: Callable[[bytes], None],
        on_end: Callable[[str], None],
        *,
        frame_bytes_max: int,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        on_drained: Callable[[], None] | None = None,
        four_letters: Callable[[bytes], bytes | None] | None = None,
    ) -> None:
        self.stream = stream
        self.is_closed = False
        self.frame_bytes_max = frame_bytes_max
        self._on_frame = on_frame
        self._on_end = on_end
        self._on_drained = on_drained
        self._unsent_bytes_max = unsent_bytes_max
        self._four_letters = four_letters  # what the first four bytes of a connection may ask for instead of a frame
        self._received = bytearray()
        self._buffer = bytearray(RECEIVE_BYTES)
        self._unsent = bytearray()
        self._is_paused = False
        self._is_taking = False
        self._waits_for_room = False
        stream.watch_read(self._readable)

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    # ── sending ──────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, frame: Buffer) -> None:
        """Send it, now or when there is room. A single frame may be of any size."""
        if self.is_closed:
            return
        if len(self._unsent) > self._unsent_bytes_max:
            self.end("it does not read what it is sent")
            return
        self._unsent += frame
        if not self._waits_for_room:
            self._send()

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = self.stream.send(bytes(self._unsent[:RECEIVE_BYTES]))
                del self._unsent[:sent]
        except BlockingIOError:
            if not self._waits_for_room:
                self._waits_for_room = True
                self.stream.watch_write(self._send)
            return
        except OSError as error:
            self.end(str(error))
            return
        if self._waits_for_room:
            self._waits_for_room = False
            self.stream.watch_write(None)
            if self._on_drained is not None:
                self._on_drained()

    # ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────

    def pause(self) -> None:
        """Take no more frames until `resume`."""
        if not self._is_paused and not self.is_closed:
            self._is_paused = True
            self.stream.watch_read(None)

    def resume(self) -> None:
        if self._is_paused and not self.is_closed:
            self._is_paused = False
            self.stream.watch_read(self._readable)
            self._take_frames()

    def _readable(self) -> None:
        try:
            count = self.stream.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self.end(str(error))
            return
        if not count:
            self.end("the other end closed it")
            return
        self._received += memoryview(self._buffer)[:count]
        self._take_frames()

    def _take_frames(self) -> None:
        if self._is_taking:  # by a frame that resumed what it had paused: the loop below goes on
            return
        self._is_taking = True
        try:
            while len(self._received) >= 4 and not self.is_closed and not self._is_paused:
                if not self._take_frame():
                    return
        finally:
            self._is_taking = False

    def _take_frame(self) -> bool:
        """Hand on the first frame, if it is whole."""
        if self._four_letters is not None:
            answer, self._four_letters = self._four_letters(bytes(self._received[:4])), None
            if answer is not None:
                self.send(answer)
                self.end("")
                return False
        size = int.from_bytes(self._received[:4], "big", signed=True)
        if not 0 <= size <= self.frame_bytes_max:
            self.end(f"a frame of {size} bytes; at most {self.frame_bytes_max} are taken")
            return False
        if len(self._received) < 4 + size:
            return False
        frame = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        self._on_frame(frame)
        return True

    def end(self, reason: str) -> None:
        """Close the connection, once."""
        if not self.is_closed:
            self.is_closed = True
            self.stream.watch_read(None)
            self.stream.watch_write(None)
            self.stream.close()
            self._received.clear()
            self._unsent.clear()
            self._on_end(reason)
