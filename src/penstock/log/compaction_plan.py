"""What of a log is to be compacted: pure arithmetic over its segments.

    |  clean: compacted before  |  dirty: may be compacted now  |  not yet  |
    start                       first dirty                     end         log end

"Not yet" begins, at the boundary of a segment, at whichever comes first: the segment that is being written, the last
stable offset (which is never above the high watermark), what is not synced yet, and the first segment with a record
that is younger than `min.compaction.lag.ms`. Only whole segments are compacted, and always from the first one on: a key
that is written anew makes a record in the clean part go. How often that happens is told by the *dirty ratio*, the dirty
part of all that would be read.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log.config import FOREVER, LogConfig
from penstock.log.partition_log import PartitionLog
from penstock.log.scan import DamagedLog
from penstock.log.segment import NOT_KNOWN, RELATIVE_OFFSET_MAX, Segment
from penstock.log.sparse_index import DamagedIndex


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """See the head of this file."""

    segments: list[Segment]  # clean and dirty ones
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # something is dirty for longer than `max.compaction.lag.ms`

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        if not self.dirty_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def plan_compaction(log: PartitionLog, *, last_stable_offset: int, now_ms: int) -> CompactionPlan:
    """What could be compacted now."""
    closed = log.segments[:-1]
    first_dirty = log.cleaned_offset
    if not log.start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.start_offset
    end_offset = min(last_stable_offset, log.recovery_point, _first_young(closed, first_dirty, log.config, now_ms))
    cleanable = [segment for segment in closed if segment.next_offset <= end_offset]
    clean = [segment for segment in cleanable if segment.next_offset <= first_dirty]
    dirty = cleanable[len(clean) :]
    return CompactionPlan(
        segments=cleanable,
        first_dirty_offset=first_dirty,
        end_offset=cleanable[-1].next_offset if cleanable else first_dirty,
        clean_bytes=sum(segment.size_bytes for segment in clean),
        dirty_bytes=sum(segment.size_bytes for segment in dirty),
        is_overdue=_is_overdue(log, dirty, now_ms),
    )


def _first_young(closed: list[Segment], first_dirty: int, config: LogConfig, now_ms: int) -> int:
    """Where the first segment with a young record begins."""
    if config.min_compaction_lag_ms > 0:
        for segment in closed:
            if segment.next_offset > first_dirty and _newest_ms(segment) > now_ms - config.min_compaction_lag_ms:
                return segment.base_offset
    return NOT_KNOWN


def _newest_ms(segment: Segment) -> int:
    try:
        return segment.max_timestamp()
    except (DamagedIndex, DamagedLog):
        return NOT_KNOWN


def _is_overdue(log: PartitionLog, dirty: list[Segment], now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    return lag_ms != FOREVER and any(_oldest_ms(log, segment, now_ms) < now_ms - lag_ms for segment in dirty)


def _oldest_ms(log: PartitionLog, segment: Segment, now_ms: int) -> int:
    """Of a segment's records. Times are the clients' word: without one, or with one that is still to come, it is the
    time of the last append, as retention has it; or else a record could stay for as long as its writer likes."""
    first_ms = segment.first_time()
    if 0 < first_ms <= now_ms:
        return first_ms
    try:
        return log.files.disk.modified_ms(segment.log_path)
    except OSError:  # whoever reads it will be told
        return now_ms


def grouped(segments: list[Segment], config: LogConfig) -> list[list[Segment]]:
    """Segments that become one each: together not larger than a segment may be, by bytes, indexes and offsets."""
    groups: list[list[Segment]] = []
    for segment in segments:
        if groups and _fits([*groups[-1], segment], config):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: list[Segment], config: LogConfig) -> bool:
    return (
        sum(segment.size_bytes for segment in group) <= config.segment_bytes
        and sum(_index_bytes(segment) for segment in group) <= config.index_size_bytes_max
        and in_reach(group)
    )


def _index_bytes(segment: Segment) -> int:
    try:
        return max(segment.index.size_bytes, segment.time_index.size_bytes)
    except DamagedIndex:
        return 0


def in_reach(group: list[Segment]) -> bool:
    """Whether the offsets of one index reach over all of them."""
    return group[-1].next_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
