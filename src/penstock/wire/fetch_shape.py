"""The common fetch request: one partition. Where its offset lies, and what its answer looks like.

From one request of a reader to the next only the offset changes, and the epoch of its session if it has one; around the
numbers of the answer everything is the same.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.wire.fetch_response import FLEXIBLE_SINCE, TOPIC_IDS_SINCE
from penstock.wire.varint import read_varint, write_varint

FIRST_SHAPED_VERSION = 7  # from here on a request has a session, and every answer the same numbers
REPLICA_ID_UNTIL = 14
RACKS_SINCE = 11
LEADER_EPOCH_SINCE = 9


class FetchLayout(NamedTuple):
    """Where in the frame those numbers lie that change."""

    session_epoch_at: int
    offset_at: int


class FetchShape(NamedTuple):
    """What stands before the three offsets of the answer, after them, and after the records."""

    before: bytes
    after: bytes
    tail: bytes


def layout_of(frame: memoryview, position: int, version: int) -> FetchLayout:
    """Of a request that names exactly one partition, whose body begins at a position. It has been decoded before."""
    position += 13 if version > REPLICA_ID_UNTIL else 17  # replica id, wait, min bytes, max bytes, isolation level
    session_epoch_at = position + 4
    position += 8
    if version >= TOPIC_IDS_SINCE:
        position += 1 + 16
    elif version >= FLEXIBLE_SINCE:
        size, position = read_varint(frame, position + 1)
        position += size - 1
    else:
        position += 4 + 2 + int.from_bytes(frame[position + 4 : position + 6], "big")
    position += 1 if version >= FLEXIBLE_SINCE else 4  # one partition
    position += 8 if version >= LEADER_EPOCH_SINCE else 4  # its number, its leader's epoch
    return FetchLayout(session_epoch_at, position)


def shape_of(version: int, session_id: int, topic: bytes, index: int, *, tells_aborted: bool) -> FetchShape:
    """Of an answer with records of one partition and no aborted transactions; the topic is its name, or its id."""
    is_flexible = version >= FLEXIBLE_SINCE
    one = b"\2" if is_flexible else b"\0\0\0\1"
    if version >= TOPIC_IDS_SINCE:
        name = topic
    elif is_flexible:
        name = _varint(len(topic) + 1) + topic
    else:
        name = len(topic).to_bytes(2, "big") + topic
    no_throttle_no_error = bytes(4 + 2)
    before = (
        no_throttle_no_error + session_id.to_bytes(4, "big") + one + name + one + index.to_bytes(4, "big") + b"\0\0"
    )
    if is_flexible:
        after = b"\1" if tells_aborted else b"\0"
    else:
        after = b"\0\0\0\0" if tells_aborted else b"\xff\xff\xff\xff"
    if version >= RACKS_SINCE:
        after += b"\xff\xff\xff\xff"  # no other replica is preferred
    # tags: of the header before all else; of partition, topic and answer at the end
    return FetchShape(b"\0" + before, after, b"\0\0\0") if is_flexible else FetchShape(before, after, b"")


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)
