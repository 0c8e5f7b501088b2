"""Answers out of a stream of bytes, each in a buffer of its own: a 32-bit size, and then so many bytes.

Whoever receives asks for `room`, fills some of it and says how much; when a frame is whole, it is handed over. What a
size says is believed up to what was to be expected; a larger frame gets its room as its bytes arrive. The buffer of a
large frame is used again once nobody holds a part of the frame any more: fresh memory costs a third of receiving.
"""

from __future__ import annotations

import sys
from struct import Struct
from typing import NamedTuple

from penstock.wire.schema import ProtocolError

FRAME_BYTES_MIN = 4  # the correlation id
#: Buffers from here on are used again, those up to there are kept for it.
SPARE_BYTES = range(64 * 1024, (64 << 20) + 1)

_SIZE = Struct(">i")
#: The references to a buffer that nobody else uses: ours, and that of the question.
_OURS = 2


class Limits(NamedTuple):
    """Of a frame: how many bytes are plausible, and how many are possible."""

    expected_bytes: int
    bytes_max: int


class FrameBuffer:
    """See the head of this file."""

    def __init__(self) -> None:
        self._size = bytearray(4)
        self._room = memoryview(self._size)
        self._filled = 0
        self._needs = 0  # of the frame; 0 while its size is received
        self._spare: bytearray | None = None

    @property
    def room(self) -> memoryview:
        """Where the next bytes go; never empty, and never beyond the end of a frame."""
        return self._room[self._filled :]

    def received(self, count: int, limits: Limits) -> memoryview | None:
        """So many bytes were put into the room; the frame, if it is whole. ProtocolError if it cannot be one."""
        self._filled += count
        if not self._needs:
            if self._filled == len(self._size):
                self._begin(limits)
            return None
        if self._filled < self._needs:
            if self._filled == len(self._room):
                self._grow()
            return None
        frame = self._room
        self._room, self._filled, self._needs = memoryview(self._size), 0, 0
        return frame

    def _begin(self, limits: Limits) -> None:
        (size,) = _SIZE.unpack(self._size)
        if not FRAME_BYTES_MIN <= size <= limits.bytes_max:
            raise ProtocolError(f"{size} bytes are no answer; is it a Kafka broker?")
        self._room = self._new_room(min(size, limits.expected_bytes))
        self._filled, self._needs = 0, size

    def _new_room(self, size: int) -> memoryview:
        if size not in SPARE_BYTES:
            return memoryview(bytearray(size))
        if self._spare is None or size > len(self._spare) or sys.getrefcount(self._spare) > _OURS:
            self._spare = bytearray(size)
        return memoryview(self._spare)[:size]

    def _grow(self) -> None:
        grown = memoryview(bytearray(min(2 * self._filled, self._needs)))
        grown[: self._filled] = self._room
        self._room = grown
