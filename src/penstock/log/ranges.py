"""Ranges of whole batches that lie together in one file: what a fetch is answered with.

The broker never looks inside: it hands file, position and size to `send_file`.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.world import File
from penstock.log.scan import DamagedLog, walk_batches
from penstock.log.segment import Segment


class LogRange(NamedTuple):
    """Whole batches that lie together in one file."""

    file: File
    position: int
    size_bytes: int
    unverified: bool  # not checked since the start: `PartitionLog.verify` first
    segment: Segment | None

    def damage(self) -> DamagedLog | None:
        """Check the batches against their checksums. May block; may run in another thread."""
        try:
            for _ in walk_batches(self.file, self.position, self.position + self.size_bytes):
                pass
        except DamagedLog as damage:
            return damage
        return None


def range_in(segment: Segment, offset: int, max_bytes: int, end_offset: int, at_least_one: bool) -> LogRange:
    """Where the asked batches lie in one segment."""
    position = segment.locate(offset)
    stop = segment.size_bytes if end_offset >= segment.next_offset else segment.locate(end_offset)
    if stop - position > max_bytes:
        stop = segment.boundary_at_or_before(position + max_bytes)
        if stop <= position:
            stop = segment.end_of_batch(position) if at_least_one else position
    if stop <= position:
        return NOTHING
    unverified = not segment.is_verified(position, stop)
    return LogRange(segment.open_file(), position, stop - position, unverified, segment)


class _NoFile:
    """The file of a range without bytes."""

    path = ""

    def size(self) -> int:
        return 0

    def read(self, count: int, offset: int) -> bytes:
        return b""

    def write(self, buffers: object, offset: int) -> int:
        raise OSError("there is no file to write to")

    def truncate(self, size: int) -> None:
        raise OSError("there is no file to cut")

    def sync(self) -> None: ...

    def is_cached(self, offset: int, count: int) -> bool:
        return True

    def close(self) -> None: ...


NOTHING = LogRange(_NoFile(), 0, 0, False, None)
