"""What is looked at before anything is written: the times of a client's batch, and all that a follower was sent."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.wire.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, each_batch, problem_of_batch


def check_followed(batches: memoryview, next_offset: int) -> list[tuple[BatchHeader, memoryview]]:
    """The batches of a buffer; ApiError if one is bad, out of order, or not whole."""
    size_bytes = 0
    checked = list(each_batch(batches))
    for header, batch in checked:
        problem = problem_of_batch(batch, header)
        if problem is not None:
            raise ApiError(Error.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}: {problem}")
        if header.base_offset < next_offset:
            raise ApiError(
                Error.UNKNOWN_SERVER_ERROR, f"batch at offset {header.base_offset} where {next_offset} must follow"
            )
        next_offset = header.next_offset
        size_bytes += len(batch)
    if size_bytes != len(batches):
        raise ApiError(Error.CORRUPT_MESSAGE, f"{len(batches) - size_bytes} bytes after the last whole batch")
    return checked


def refuse_timestamps(header: BatchHeader, now_ms: int) -> None:
    """INVALID_TIMESTAMP for times that the topic does not take, unless the batch has no time at all."""
    if header.attributes & LOG_APPEND_TIME:
        raise ApiError(Error.INVALID_TIMESTAMP, "a producer may not say that the log gave the time")
    if header.base_timestamp == NO_TIMESTAMP and header.max_timestamp == NO_TIMESTAMP:
        return
    raise ApiError(
        Error.INVALID_TIMESTAMP,
        f"timestamps {header.base_timestamp} to {header.max_timestamp} are too far from {now_ms}",
    )
