"""One connection that carries frames: an int32 size, then so many bytes. Both ends of ZooKeeper's protocol use it."""

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
        four_letters: Callable[[bytes], bytes | None] | None = None,
    ) -> None:
        self.stream = stream
        self.is_closed = False
        self._on_frame = on_frame
        self._on_end = on_end
        self._frame_bytes_max = frame_bytes_max
        self._four_letters = four_letters  # what the first four bytes of a connection may ask for instead of a frame
        self._received = bytearray()
        self._buffer = bytearray(RECEIVE_BYTES)
        self._unsent = bytearray()
        stream.watch_read(self._readable)

    def send(self, frame: Buffer) -> None:
        """Send it, now or when there is room."""
        if self.is_closed:
            return
        self._unsent += frame
        if len(self._unsent) > UNSENT_BYTES_MAX:
            self.end("it does not read what it is sent")
        else:
            self._send()

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = self.stream.send(bytes(self._unsent[:RECEIVE_BYTES]))
                del self._unsent[:sent]
        except BlockingIOError:
            self.stream.watch_write(self._send)
            return
        except OSError as error:
            self.end(str(error))
            return
        self.stream.watch_write(None)

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
        while len(self._received) >= 4 and not self.is_closed:
            if self._four_letters is not None:
                answer, self._four_letters = self._four_letters(bytes(self._received[:4])), None
                if answer is not None:
                    self.send(answer)
                    self.end("")
                    return
            size = int.from_bytes(self._received[:4], "big", signed=True)
            if not 0 <= size <= self._frame_bytes_max:
                self.end(f"a frame of {size} bytes; at most {self._frame_bytes_max} are taken")
                return
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._on_frame(frame)

    def end(self, reason: str) -> None:
        """Close the connection, once."""
        if not self.is_closed:
            self.is_closed = True
            self.stream.watch_read(None)
            self.stream.watch_write(None)
            self.stream.close()
            self._on_end(reason)
