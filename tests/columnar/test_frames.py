"""Frames out of a stream: cut anywhere, larger than expected, impossible; and whose buffer is used again."""

from __future__ import annotations

import struct

import pytest

from penstock.columnar.frames import SPARE_BYTES, FrameBuffer, Limits
from penstock.wire.schema import ProtocolError

LIMITS = Limits(expected_bytes=1 << 20, bytes_max=1 << 22)


def feed(frames: FrameBuffer, data: bytes, piece: int, limits: Limits = LIMITS) -> list[memoryview]:
    """Give it bytes in pieces of at most this size."""
    found = []
    while data:
        room = frames.room
        count = min(len(room), piece, len(data))
        room[:count] = data[:count]
        data = data[count:]
        frame = frames.received(count, limits)
        if frame is not None:
            found.append(frame)
    return found


def framed(*contents: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(content)) + content for content in contents)


@pytest.mark.parametrize("piece", [1, 3, 5, 1000])
def test_frames_come_out_as_they_went_in(piece: int) -> None:
    contents = [b"abcd", b"x" * 300, b"12345"]
    assert [bytes(frame) for frame in feed(FrameBuffer(), framed(*contents), piece)] == contents


@pytest.mark.parametrize("expected_bytes", [4, 100, 70_000])
def test_a_frame_larger_than_expected_gets_its_room_as_it_comes(expected_bytes: int) -> None:
    content = bytes(range(256)) * 800
    frames = FrameBuffer()
    (frame,) = feed(frames, framed(content), 1000, Limits(expected_bytes, 1 << 20))
    assert bytes(frame) == content


@pytest.mark.parametrize("size", [-1, 0, 3, (1 << 22) + 1, 0x7FFFFFFF])
def test_impossible_sizes(size: int) -> None:
    with pytest.raises(ProtocolError, match="is it a Kafka broker"):
        feed(FrameBuffer(), struct.pack(">i", size), 4)


def test_a_buffer_is_used_again_when_nobody_holds_a_part_of_it() -> None:
    frames = FrameBuffer()
    content = b"a" * SPARE_BYTES.start * 2
    (first,) = feed(frames, framed(content), 1 << 20)
    buffer = first.obj
    part = first[10:20]
    del first
    (second,) = feed(frames, framed(b"b" * len(content)), 1 << 20)
    assert second.obj is not buffer
    assert bytes(part) == b"a" * 10
    buffer = second.obj
    second.release()
    del second
    count_before = id(buffer)
    del buffer
    (third,) = feed(frames, framed(b"c" * (len(content) - 1)), 1 << 20)
    assert id(third.obj) == count_before
    assert bytes(third) == b"c" * (len(content) - 1)
