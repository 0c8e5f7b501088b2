"""Which segments are due to be deleted: by time, by size, or because the log start has moved past them.

Only whole segments go, oldest first, and never one that reaches past the high watermark. A segment is as old as its
newest record. Timestamps come from clients: a segment whose newest record lies in the future, or has no time at all, or
cannot be found, is as old as its file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.log.config import LogConfig
from penstock.log.scan import DamagedLog
from penstock.log.segment import Segment
from penstock.log.sparse_index import DamagedIndex
from penstock.wire.batch import NO_TIMESTAMP

Reason = Literal["time", "size", "start offset"]


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    """A segment that retention took, and why."""

    base_offset: int
    next_offset: int
    size_bytes: int
    reason: Reason


def segments_to_delete(
    segments: list[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    high_watermark: int,
    start_offset: int,
    modified_ms: Callable[[Segment], int],
) -> list[DeletedSegment]:
    """The oldest segments that are due, in order; possibly all of them."""
    due: list[DeletedSegment] = []
    excess_bytes = _excess_bytes(segments, config)
    emptied: list[Segment] = []  # by compaction: they go with the next one
    for segment in segments:
        if segment.next_offset > high_watermark:
            break
        if not segment.size_bytes:
            emptied.append(segment)
            continue
        reason = _reason(segment, config, now_ms, start_offset, excess_bytes, modified_ms)
        if reason is None:
            break
        excess_bytes -= segment.size_bytes
        for each in (*emptied, segment):
            due.append(DeletedSegment(each.base_offset, each.next_offset, each.size_bytes, reason))
        emptied = []
    return due


def _excess_bytes(segments: list[Segment], config: LogConfig) -> int:
    if config.retention_bytes < 0 or not config.deletes:
        return -1
    return sum(segment.size_bytes for segment in segments) - config.retention_bytes


def _reason(
    segment: Segment,
    config: LogConfig,
    now_ms: int,
    start_offset: int,
    excess_bytes: int,
    modified_ms: Callable[[Segment], int],
) -> Reason | None:
    if segment.next_offset <= start_offset:
        return "start offset"
    if not config.deletes:
        return None
    if config.retention_ms >= 0 and now_ms - _newest_ms(segment, now_ms, modified_ms) > config.retention_ms:
        return "time"
    return "size" if excess_bytes >= segment.size_bytes else None


def _newest_ms(segment: Segment, now_ms: int, modified_ms: Callable[[Segment], int]) -> int:
    try:
        newest = segment.max_timestamp()
    except (DamagedIndex, DamagedLog):
        newest = NO_TIMESTAMP
    return newest if 0 <= newest <= now_ms else modified_ms(segment)
