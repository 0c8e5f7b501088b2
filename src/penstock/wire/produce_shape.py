"""The common produce request: one batch for one partition. Where its records lie, and what its answer looks like.

What stands before the records of such a request, and what stands around the numbers of its answer, is the same from one
request of a producer to the next.
"""

from __future__ import annotations

from penstock.wire.varint import write_varint

FLEXIBLE_SINCE = 9
TOPIC_IDS_SINCE = 13
FIRST_SHAPED_VERSION = 7  # from here on every answer has the same numbers, and every codec is taken
NO_TAGS_THRICE = b"\0\0\0"  # after the partition, after the topic, after the request


def head_end_of(frame: memoryview, records_size_bytes: int, version: int) -> int | None:
    """Where the size of the records begins in a request for one partition; None if anything follows the records."""
    if version < FLEXIBLE_SINCE:
        size, after = records_size_bytes.to_bytes(4, "big"), b""
    else:
        size, after = _varint(records_size_bytes + 1), NO_TAGS_THRICE
    records_end = len(frame) - len(after)
    head_end = records_end - records_size_bytes - len(size)
    if frame[head_end : head_end + len(size)] != size or frame[records_end:] != after:
        return None
    return head_end


def answer_shape(version: int, topic: bytes) -> tuple[bytes, bytes]:
    """What stands before and after the numbers of one partition's answer; the topic is its name, or its id."""
    if version < FLEXIBLE_SINCE:
        one = b"\0\0\0\1"
        suffix = b"\0\0\0\0"  # throttle time
        if version >= 8:
            suffix = b"\0\0\0\0\xff\xff" + suffix  # no record errors, no message
        return one + len(topic).to_bytes(2, "big") + topic + one, suffix
    name = topic if version >= TOPIC_IDS_SINCE else _varint(len(topic) + 1) + topic
    # header tags, one topic; no record errors, no message, no tags twice; throttle time; no tags
    return b"\0\2" + name + b"\2", b"\1\0\0\0" + b"\0\0\0\0" + b"\0"


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)
