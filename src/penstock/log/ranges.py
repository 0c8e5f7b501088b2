"""Ranges of whole batches that lie together in one file: what a fetch is answered with.

The broker never looks inside: it hands file, position and size to `send_file`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from penstock.base.errors import ApiError, Error
from penstock.base.world import File
from penstock.log.scan import DamagedLog, walk_batches
from penstock.log.segment import NOT_KNOWN, Segment
from penstock.log.sparse_index import DamagedIndex


class LogRange(NamedTuple):
    """Whole batches that lie together in one file."""

    file: File
    position: int
    size_bytes: int
    unverified: bool  # not checked since the start: `verify` first
    segment: Segment | None

    @property
    def offset_bound(self) -> int:
        """An offset that the batches do not reach, and not far beyond them."""
        if self.segment is None:
            return 0
        try:
            return self.segment.offset_bound(self.position + self.size_bytes)
        except DamagedIndex:  # whoever looks for an offset with it builds it anew
            return self.segment.next_offset

    def verify(self) -> str | None:
        """What is wrong with the batches, or None, which is remembered. May block; may run in another thread."""
        damage = self.damage()
        if damage is not None:
            return str(damage)
        if self.segment is not None:
            self.segment.mark_verified(self.position, self.position + self.size_bytes)
        return None

    def damage(self) -> DamagedLog | None:
        """Check the batches: their checksums, and their offsets, which no checksum covers. May block; in any thread."""
        lowest, end = (
            (self.segment.base_offset, self.segment.next_offset) if self.segment is not None else (0, NOT_KNOWN)
        )
        try:
            for position, header, _ in walk_batches(self.file, self.position, self.position + self.size_bytes):
                if not lowest <= header.base_offset < header.next_offset <= end:
                    problem = f"offsets {header.base_offset} to {header.last_offset} are not in {lowest}..{end}"
                    return DamagedLog(self.file.path, position, problem)
                lowest = header.next_offset
        except DamagedLog as damage:
            return damage
        return None


Rebuild = Callable[[Segment], None]  # builds the indexes of a segment anew
T = TypeVar("T")


def read_segments(
    segments: list[Segment], offset: int, max_bytes: int, end_offset: int, at_least_one: bool, rebuild: Rebuild
) -> LogRange:
    """The range in the first of some segments that has one: a segment may end with a hole."""
    for segment in segments:
        found = read_segment(segment, offset, max_bytes, end_offset, at_least_one, rebuild)
        if found.size_bytes or segment.next_offset >= end_offset:
            return found
    return NOTHING


def read_segment(
    segment: Segment, offset: int, max_bytes: int, end_offset: int, at_least_one: bool, rebuild: Rebuild
) -> LogRange:
    """The range in one segment; a damaged index is built anew, a damaged log is a storage error."""
    try:
        return _range_in(segment, offset, max_bytes, end_offset, at_least_one)
    except DamagedIndex:
        pass
    except DamagedLog as damage:
        raise ApiError(Error.KAFKA_STORAGE_ERROR, str(damage)) from damage
    try:
        rebuild(segment)
        return _range_in(segment, offset, max_bytes, end_offset, at_least_one)
    except DamagedLog as damage:
        raise ApiError(Error.KAFKA_STORAGE_ERROR, str(damage)) from damage


def search_segments(segments: list[Segment], search: Callable[[list[Segment]], T], rebuild: Rebuild) -> T:
    """Look for something in all segments, with the same answers to damage."""
    try:
        return search(segments)
    except DamagedIndex:
        pass
    except DamagedLog as damage:
        raise ApiError(Error.KAFKA_STORAGE_ERROR, str(damage)) from damage
    try:
        for segment in segments:
            rebuild(segment)
        return search(segments)
    except DamagedLog as damage:
        raise ApiError(Error.KAFKA_STORAGE_ERROR, str(damage)) from damage


def _range_in(segment: Segment, offset: int, max_bytes: int, end_offset: int, at_least_one: bool) -> LogRange:
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
