"""The common produce request, read and answered by hand: one batch for one partition, with an acknowledgement and no
transactional id.

Anything else, a broken request included, is not of this shape and gets None: the declared messages are there for it. A
test holds both ways equal.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

FLEXIBLE_SINCE = 9
TOPIC_IDS_SINCE = 13
FIRST_SINGLE_VERSION = 7  # from here on every answer has the same numbers, and every codec is taken

_CLASSIC_HEAD = Struct(">hhiih")  # transactional id length, acks, timeout, topic count, name length
_CLASSIC_PART = Struct(">iii")  # partition count, index, record bytes
_FLEXIBLE_HEAD = Struct(">bhibB")  # transactional id length, acks, timeout, topic count, name length
_FLEXIBLE_PART = Struct(">BiB")  # partition count, index, first byte of the records' size
_UNPACK_CLASSIC_HEAD = _CLASSIC_HEAD.unpack_from
_UNPACK_CLASSIC_PART = _CLASSIC_PART.unpack_from
_UNPACK_FLEXIBLE_HEAD = _FLEXIBLE_HEAD.unpack_from
_UNPACK_FLEXIBLE_PART = _FLEXIBLE_PART.unpack_from
_ANSWERED_ACKS = (-1, 1)

Single: TypeAlias = tuple[int, int, bytes, int, memoryview]
"""A request of the common shape, with an acknowledgement and no transactional id: one batch for one partition.

(acks, timeout in ms, topic as it is named on the wire, partition, records)
"""


def read_single_classic(frame: memoryview, position: int) -> Single | None:
    """The common shape in versions 5 to 8, or None for any other shape (or a broken one)."""
    if len(frame) - position < 30:
        return None
    no_id, acks, timeout_ms, topic_count, name_length = _UNPACK_CLASSIC_HEAD(frame, position)
    position += 14
    if no_id != -1 or topic_count != 1 or not 0 < name_length <= 249 or acks not in _ANSWERED_ACKS:
        return None
    records_at = position + name_length + 12
    if records_at > len(frame):
        return None
    partition_count, index, size_bytes = _UNPACK_CLASSIC_PART(frame, position + name_length)
    if partition_count != 1 or size_bytes != len(frame) - records_at:
        return None
    return acks, timeout_ms, bytes(frame[position : position + name_length]), index, frame[records_at:]


def read_single_flexible(frame: memoryview, position: int, version: int) -> Single | None:
    """The common shape in versions 9 to 13, or None for any other shape (or a broken one)."""
    frame_bytes = len(frame)
    if frame_bytes - position < 32:
        return None
    no_id, acks, timeout_ms, topic_count, name_length = _UNPACK_FLEXIBLE_HEAD(frame, position)
    if no_id != 0 or topic_count != 2 or acks not in _ANSWERED_ACKS:
        return None
    if version < TOPIC_IDS_SINCE:
        topic_at = position + 9
        topic_end = topic_at + name_length - 1
        if not 1 < name_length <= 0x7F:
            return None
    else:
        topic_at = position + 8
        topic_end = topic_at + 16
    if frame_bytes - topic_end < 10:
        return None
    partition_count, index, size_bytes = _UNPACK_FLEXIBLE_PART(frame, topic_end)
    position = topic_end + 6
    if size_bytes > 0x7F:
        size_bytes &= 0x7F
        for shift in (7, 14, 21, 28):
            byte = frame[position]
            position += 1
            size_bytes |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
    end = position + size_bytes - 1
    if partition_count != 2 or end != frame_bytes - 3 or frame[end] or frame[end + 1] or frame[end + 2]:
        return None
    return acks, timeout_ms, bytes(frame[topic_at:topic_end]), index, frame[position:end]


def answer_shape(version: int, topic: bytes) -> tuple[bytes, bytes]:
    """What stands before and after the numbers of one partition's answer."""
    if version < FLEXIBLE_SINCE:
        one = b"\0\0\0\1"
        suffix = b"\0\0\0\0"  # throttle time
        if version >= 8:
            suffix = b"\0\0\0\0\xff\xff" + suffix  # no record errors, no message
        return one + len(topic).to_bytes(2, "big") + topic + one, suffix
    name = topic if version >= TOPIC_IDS_SINCE else bytes([len(topic) + 1]) + topic
    # header tags, one topic; no record errors, no message, no tags twice; throttle time; no tags
    return b"\0\2" + name + b"\2", b"\1\0\0\0" + b"\0\0\0\0" + b"\0"
