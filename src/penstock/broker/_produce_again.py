"""The same producer writes to the same partition again.

Almost all requests of a producer differ only in their correlation id and their records: everything before the records
(version, client id, acks, timeout, topic, partition) is the same bytes as the last time. So the first such request
leaves a `ProduceAgain` with its connection, and a request that begins with the same bytes goes straight from the
comparison to the log. Whatever is not exactly that is None here, with nothing done, and goes the ordinary way. Where
records have to reach replicas, or the disk, before they are acknowledged, the answer is made here and leaves later.

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_produce_again.pxd`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from penstock.base.errors import ApiError
from penstock.base.world import Buffer
from penstock.broker.partition import Partition
from penstock.log._append import Appended

_UNPACK_API_AND_CORRELATION = Struct(">ii").unpack_from
HEAD_AT = 8  # after api key, version and correlation id
_TAGS_BYTES = 3  # after the records of a flexible request: of the partition, the topic and the request


class ProduceAgain:
    """One producer's way to one partition; `shape` is what stands before and after the numbers of the answer.

    `wait` takes an answer and the offset up to which the log has to be committed before it is given; without it nobody
    waits for that (acks=1). `is_free` is there where the producer has a quota: whether it may send so many bytes.
    """

    __slots__ = (
        "_answer",
        "_answer_size",
        "_api",
        "_append",
        "_end",
        "_index",
        "_is_flexible",
        "_is_free",
        "_partition",
        "_prefix",
        "_suffix",
        "_wait",
        "head",
    )

    def __init__(
        self,
        frame: memoryview,
        head_end: int,
        append: Callable[[Partition, memoryview], Appended],
        partition: Partition,
        shape: tuple[bytes, bytes],
        wait: Callable[[bytes, int], None] | None,
        *,
        is_flexible: bool,
        is_free: Callable[[int], bool] | None = None,
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
        self._wait = wait
        self._is_flexible = is_flexible
        self._is_free = is_free

    def __call__(self, frame: memoryview) -> bytes | None:
        """The answer to a request with this head, b"" if it is given later, or None with nothing done."""
        api_and_version, correlation_id = _UNPACK_API_AND_CORRELATION(frame)
        partition = self._partition
        if api_and_version != self._api:
            return None
        counts_at_once = partition.takes_at_once
        if not counts_at_once and not self._takes_now(partition):
            return None
        if self._is_flexible:
            records_at = _flexible_records(frame, self._end)
            records_end = len(frame) - _TAGS_BYTES
        else:
            records_at = _classic_records(frame, self._end)
            records_end = len(frame)
        if records_at < 0 or (self._is_free is not None and not self._is_free(len(frame))):
            return None
        try:
            appended = self._append(partition, frame[records_at:records_end])
        except ApiError:
            return None  # nothing was appended: the ordinary way finds the same and says what
        answer: bytes = self._answer(
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
        if counts_at_once or self._wait is None or appended.last_offset < partition.high_watermark:
            return answer
        self._wait(answer, appended.last_offset + 1)
        return b""

    def _takes_now(self, partition: Partition) -> bool:
        """Whether a batch can be appended as it is, though it has to be committed yet."""
        leader = partition.leader
        if leader is None or partition.is_syncing or partition.is_gone or partition.config.inside:
            return False
        return self._wait is None or leader.has_enough


def _classic_records(frame: Buffer, position: int) -> int:
    """Where the records begin that follow four bytes of their size; -1 if they do not end with the frame."""
    records_at = position + 4
    if len(frame) < records_at:
        return -1
    size_bytes = (frame[position] << 8) | frame[position + 1]
    size_bytes = (size_bytes << 8) | frame[position + 2]
    size_bytes = (size_bytes << 8) | frame[position + 3]
    return records_at if size_bytes == len(frame) - records_at else -1


def _flexible_records(frame: Buffer, position: int) -> int:
    """The same after a varint of their size plus one, with three empty sets of tagged fields after the records."""
    frame_bytes = len(frame)
    if frame_bytes - position < 8:
        return -1
    size_bytes = frame[position] & 0x7F
    more = frame[position] & 0x80
    position += 1
    shift = 7
    while more and shift < 35:
        more = frame[position] & 0x80
        size_bytes |= (frame[position] & 0x7F) << shift
        shift += 7
        position += 1
    end = frame_bytes - _TAGS_BYTES
    if position + size_bytes - 1 != end or frame[end] or frame[end + 1] or frame[end + 2]:
        return -1
    return position
