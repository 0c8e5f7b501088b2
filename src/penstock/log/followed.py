"""What a follower got from its leader, checked before any of it is written."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.wire.batch import BatchHeader, each_batch, problem_of_batch


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
