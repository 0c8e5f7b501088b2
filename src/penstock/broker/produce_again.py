"""The same producer writes to the same partition again.

Almost all requests of a producer differ only in their correlation id and their records: everything before the records
(version, client id, acks, timeout, topic, partition) is the same bytes as the last time. So the first such request
leaves a `ProduceAgain` with its connection, and a request that begins with the same bytes goes straight from the
comparison to the log. Whatever is not exactly that is None here, with nothing done, and goes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from penstock.base.errors import ApiError
from penstock.broker.partition import Partition
from penstock.log.partition_log import Appended

_UNPACK_API_AND_CORRELATION = Struct(">ii").unpack_from
_UNPACK_SIZE = Struct(">i").unpack_from
HEAD_AT = 8  # after api key, version and correlation id


class ProduceAgain:
    """One producer's way to one partition; `shape` is what stands before and after the numbers of the answer."""

    __slots__ = (
        "_answer",
        "_answer_size",
        "_api",
        "_append",
        "_end",
        "_index",
        "_is_flexible",
        "_partition",
        "_prefix",
        "_suffix",
        "head",
    )

    def __init__(
        self,
        frame: memoryview,
        head_end: int,
        append: Callable[[Partition, memoryview], Appended],
        partition: Partition,
        shape: tuple[bytes, bytes],
        *,
        is_flexible: bool,
    ) -> None:
        prefix, suffix = shape
        answer = Struct(f">ii{len(prefix)}sihqqq{len(suffix)}s")
        self._api, _ = _UNPACK_API_AND_CORRELATION(frame)
        self.head = frame[HEAD_AT:head_end].tobytes()
        self._end = head_end
        self._append = append
        self._partition = partition
        self._index = partition.name.partition
        self._answer = answer.pack
        self._answer_size = answer.size - 4
        self._prefix = prefix
        self._suffix = suffix
        self._is_flexible = is_flexible

    def __call__(self, frame: memoryview) -> bytes | None:
        """The answer to a request with this head, or None with nothing done."""
        api, correlation_id = _UNPACK_API_AND_CORRELATION(frame)
        partition = self._partition
        if api != self._api or not partition.takes_at_once:
            return None
        end = self._end
        records = _flexible_records(frame, end) if self._is_flexible else _classic_records(frame, end)
        if records is None:
            return None
        try:
            appended = self._append(partition, records)
        except ApiError:
            return None  # nothing was appended: the ordinary way finds the same and says what
        return self._answer(
            self._answer_size,
            correlation_id,
            self._prefix,
            self._index,
            0,
            appended.base_offset,
            appended.log_append_time_ms,
            partition.log.start_offset,
            self._suffix,
        )


def _classic_records(frame: memoryview, position: int) -> memoryview | None:
    if len(frame) - position < 4 or _UNPACK_SIZE(frame, position)[0] != len(frame) - position - 4:
        return None
    return frame[position + 4 :]


def _flexible_records(frame: memoryview, position: int) -> memoryview | None:
    """The records after a varint of their size plus one, with three empty sets of tagged fields after them."""
    frame_bytes = len(frame)
    if frame_bytes - position < 8:
        return None
    size_bytes = frame[position]
    position += 1
    if size_bytes > 0x7F:
        size_bytes &= 0x7F
        for shift in (7, 14, 21, 28):
            byte = frame[position]
            position += 1
            size_bytes |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
    end = position + size_bytes - 1
    if end != frame_bytes - 3 or frame[end] or frame[end + 1] or frame[end + 2]:
        return None
    return frame[position:end]
