"""A copy of a log in another folder of this broker, kept level with it: cut where the two part, then append the rest.

All of it blocks, and runs in another thread; the loop may be appending to the log meanwhile.
"""

from __future__ import annotations

import logging

from penstock.base.errors import ApiError, Error
from penstock.log.partition_log import PartitionLog
from penstock.replication.follower import NO_EPOCH_END, EpochEnd, cut_offset
from penstock.wire.batch import read_header

logger = logging.getLogger(__name__)


def cut_copy(source: PartitionLog, copy: PartitionLog) -> None:
    """Drop from a copy what the log does not have any more, or never had: by epochs, each of which has one history."""
    while copy.end_offset > copy.start_offset and copy.start_offset <= source.start_offset:
        epoch = copy.epochs.latest
        ends_at = EpochEnd(*source.epochs.end_offset_for(epoch, source.end_offset))
        if ends_at == NO_EPOCH_END:
            break
        if ends_at.epoch == epoch and ends_at.end_offset >= copy.end_offset:
            return
        logger.info("%s: the log was cut, and so is its copy", copy.folder)
        copy.truncate_to(cut_offset(ends_at, lambda each: _own_end(copy, each), copy.start_offset, copy.end_offset))
    copy.truncate_fully_and_start_at(source.start_offset)


def _own_end(copy: PartitionLog, epoch: int) -> EpochEnd:
    return EpochEnd(*copy.epochs.end_offset_for(epoch, copy.end_offset))


def copy_batches(source: PartitionLog, copy: PartitionLog, max_bytes: int) -> int:
    """Append the next batches to a copy; how many bytes they were, 0 if it is level. ApiError if one of them is bad."""
    offset = max(copy.end_offset, source.start_offset)
    batches = _batches(source, offset, max_bytes)
    begins_at = read_header(batches).base_offset if batches else offset
    if begins_at != copy.end_offset and (offset > copy.end_offset or copy.end_offset == copy.start_offset):
        copy.truncate_fully_and_start_at(begins_at)
    if batches:
        copy.append_as_follower(batches)
    copy.advance_start_offset(min(source.start_offset, copy.end_offset))
    return len(batches)


def _batches(source: PartitionLog, offset: int, max_bytes: int) -> memoryview:
    try:
        found = source.read(offset, max_bytes, end_offset=source.end_offset)
        return memoryview(found.file.read(found.size_bytes, found.position))
    except OSError as error:  # perhaps retention has just taken it
        raise ApiError(Error.KAFKA_STORAGE_ERROR, f"{source.folder} cannot be read: {error}") from error
