"""The Fetch response as a follower reads it, by hand: its records stay in the buffer they were received into.

Only versions with topic ids, which is what brokers speak among themselves, and only what a follower needs. A test holds
it equal to what the declared `FetchResponse` decodes to.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from penstock.wire.fetch_response import TOPIC_IDS_SINCE as TOPIC_IDS_SINCE
from penstock.wire.schema import ProtocolError
from penstock.wire.varint import Malformed, read_varint, skip_tagged_fields, too_long

_HEAD = Struct(">ihi")  # throttle time, error, session
_PARTITION = Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start
_EPOCH_END = Struct(">iq")
_ABORTED_BYTES = 16
_PREFERRED_BYTES = 4
_ID_BYTES = 16
_DIVERGING_TAG = 0


class FollowerAnswer(NamedTuple):
    """What a leader answers for one partition; the topic's id is as it stands on the wire."""

    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None  # (epoch, end offset)
    records: memoryview | None


class FetchAnswer(NamedTuple):
    """A whole response."""

    error: int
    session_id: int
    partitions: list[FollowerAnswer]


def read_fetch_answer(frame: memoryview, position: int) -> FetchAnswer:
    """The response of which the message begins at a position, in any version with topic ids; ProtocolError."""
    try:
        return _read(frame, position)
    except (StructError, IndexError):
        raise ProtocolError("FetchResponse: the bytes end too soon") from None
    except Malformed as fault:
        raise ProtocolError(f"FetchResponse: {fault}") from None


def _read(frame: memoryview, position: int) -> FetchAnswer:
    _, error, session_id = _HEAD.unpack_from(frame, position)
    topics, position = read_varint(frame, position + _HEAD.size)
    answers: list[FollowerAnswer] = []
    for _ in range(topics - 1):
        topic_id = frame[position : position + _ID_BYTES].tobytes()
        partitions, position = read_varint(frame, position + _ID_BYTES)
        for _ in range(partitions - 1):
            answer, position = _read_partition(frame, position, topic_id)
            answers.append(answer)
        position = _skip_tags(frame, position)
    position = _skip_tags(frame, position)
    if position != len(frame):
        raise Malformed(f"{len(frame) - position} bytes after its end")
    return FetchAnswer(error, session_id, answers)


def _read_partition(frame: memoryview, position: int, topic_id: bytes) -> tuple[FollowerAnswer, int]:
    partition, error, high_watermark, _, log_start_offset = _PARTITION.unpack_from(frame, position)
    position += _PARTITION.size
    position = _skip_aborted(frame, position) + _PREFERRED_BYTES
    size, position = read_varint(frame, position)
    records = None
    if size > 1:
        end = position + size - 1
        if end > len(frame):
            raise too_long(size - 1, len(frame) - position)
        records = frame[position:end]
        position = end
    diverging = None
    if frame[position]:
        diverging, position = _read_tags(frame, position)
    else:
        position += 1
    return FollowerAnswer(topic_id, partition, error, high_watermark, log_start_offset, diverging, records), position


def _skip_aborted(frame: memoryview, position: int) -> int:
    """Followers read everything, so there are none; if there are, each has its own tags."""
    count, position = read_varint(frame, position)
    for _ in range(count - 1):
        position = _skip_tags(frame, position + _ABORTED_BYTES)
    return position


def _read_tags(frame: memoryview, position: int) -> tuple[tuple[int, int] | None, int]:
    diverging = None
    count, position = read_varint(frame, position)
    for _ in range(count):
        tag, position = read_varint(frame, position)
        size, position = read_varint(frame, position)
        if size > len(frame) - position:
            raise too_long(size, len(frame) - position)
        if tag == _DIVERGING_TAG:
            diverging = _EPOCH_END.unpack_from(frame[position : position + size])
        position += size
    return diverging, position


def _skip_tags(frame: memoryview, position: int) -> int:
    count, position = read_varint(frame, position)
    return skip_tagged_fields(frame, position, count, len(frame))
