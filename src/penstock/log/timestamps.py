"""Finding records by their time: the first one that is not older than a time, and the newest one.

The time index leads to a batch; which record of the batch it is can only be told by looking inside. Everything here
may block on a cold file and may run in another thread than the one that appends.

Both look at the whole log, markers included, and then keep to themselves what the asker may not see yet: so does Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.log.epochs import LeaderEpochs
from penstock.log.scan import walk_headers
from penstock.log.segment import Segment
from penstock.wire.batch import LOG_OVERHEAD, BatchHeader
from penstock.wire.records import RecordError, TimedOffset, read_records, record_with_max_timestamp


class FoundByTime(NamedTuple):
    """A record: its time, where it is, and the leader epoch that wrote it."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_record_since(
    segments: list[Segment], epochs: LeaderEpochs, timestamp: int, start_offset: int, end_offset: int
) -> FoundByTime | None:
    """The first record from `start_offset` on that is not older than a time, if it lies below `end_offset`."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            return None
        if segment.next_offset <= start_offset or not segment.size_bytes or segment.max_timestamp() < timestamp:
            continue
        for position, header in walk_headers(segment.open_file(), _start(segment, timestamp), segment.size_bytes):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            found = _first_in_batch(segment, position, header, timestamp, start_offset)
            if found is not None:
                return _limited(found, epochs, end_offset)
    return None


def newest_record(
    segments: list[Segment], epochs: LeaderEpochs, start_offset: int, end_offset: int
) -> FoundByTime | None:
    """The record with the largest timestamp, the first if there are several, if it lies below `end_offset`."""
    best: tuple[Segment, int, BatchHeader] | None = None
    for segment in segments:
        if segment.next_offset <= start_offset or not segment.size_bytes:
            continue
        newest = segment.max_timestamp()
        if best is not None and newest <= best[2].max_timestamp:
            continue
        # the index knows the batch if the whole segment counts; if the log begins within it, its headers are walked
        whole = segment.base_offset >= start_offset
        start = segment.locate(segment.max_timestamp_offset) if whole else 0
        for position, header in walk_headers(segment.open_file(), start, segment.size_bytes):
            if header.last_offset >= start_offset and (best is None or header.max_timestamp > best[2].max_timestamp):
                best = segment, position, header
            if whole:
                break
    if best is None or best[2].max_timestamp < 0:
        return None
    segment, position, header = best
    try:
        found = record_with_max_timestamp(_batch(segment, position, header))
    except RecordError:
        found = None
    return _limited(found or TimedOffset(header.base_offset, header.max_timestamp), epochs, end_offset)


def _start(segment: Segment, timestamp: int) -> int:
    """Every batch before this position is older than the time."""
    entry = segment.time_index.find_by_key(timestamp)
    return segment.locate(segment.base_offset + entry[1]) if entry is not None else 0


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> TimedOffset | None:
    batch = _batch(segment, position, header)
    try:
        for record in read_records(batch):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimedOffset(record.offset, record.timestamp)
    except RecordError:  # a batch whose inside lies: its header is all that can be told
        return TimedOffset(max(header.base_offset, start_offset), header.max_timestamp)
    return None


def _batch(segment: Segment, position: int, header: BatchHeader) -> memoryview:
    return memoryview(segment.open_file().read(header.length + LOG_OVERHEAD, position))


def _limited(found: TimedOffset, epochs: LeaderEpochs, end_offset: int) -> FoundByTime | None:
    if found.offset >= end_offset:
        return None
    return FoundByTime(found.timestamp, found.offset, epochs.epoch_of(found.offset))
