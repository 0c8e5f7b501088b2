"""The same reader goes on in the same partition.

The requests of a reader of one partition differ only in their correlation id, the offset, and the epoch of the session
if there is one. So the first such request that is answered at once leaves a `FetchAgain` with its connection, and a
request with the same bytes in all other places goes straight from the comparison to the log. Whatever is not exactly
that, has to wait, or has anything but records to tell is None here, with nothing done, and goes the ordinary way.

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_fetch_again.pxd`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from penstock.base.errors import ApiError
from penstock.broker._exchange import FileRange
from penstock.broker.fetch_sessions import FetchedPartition, FetchSession
from penstock.broker.follower_session import parting_of
from penstock.broker.partition import Partition
from penstock.wire.fetch_shape import FetchLayout, FetchShape

if TYPE_CHECKING:
    from penstock.broker.connection import Response
    from penstock.broker.handlers.k01_fetch import Fetch

_UNPACK_API = Struct(">i").unpack_from
_UNPACK_CORRELATION = Struct(">i").unpack_from
_UNPACK_EPOCH = Struct(">i").unpack_from
_UNPACK_OFFSET = Struct(">q").unpack_from
_CORRELATION_AT = 4
_HEAD_AT = 8  # after api key, version and correlation id


class FetchAgain:
    """One reader's way to one partition.

    `wanted` is what the request asked of it, `bytes_min` and `bytes_max` are the bounds of an answer, `shape` is what
    stands around its numbers. A session has no other partition.
    """

    __slots__ = (
        "_after",
        "_api",
        "_before",
        "_bytes_max",
        "_bytes_min",
        "_frame_bytes",
        "_handler",
        "_head",
        "_is_committed_only",
        "_is_flexible",
        "_middle",
        "_offset_at",
        "_pack",
        "_pack_size_bytes",
        "_partition",
        "_rest",
        "_session",
        "_session_epoch",
        "_session_epoch_at",
        "_tail",
        "_wanted",
    )

    def __init__(
        self,
        handler: Fetch,
        frame: memoryview,
        layout: FetchLayout,
        shape: FetchShape,
        partition: Partition,
        wanted: FetchedPartition,
        session: FetchSession | None,
        *,
        bytes_min: int,
        bytes_max: int,
        is_committed_only: bool,
        is_flexible: bool,
    ) -> None:
        self._handler = handler
        (self._api,) = _UNPACK_API(frame)
        self._frame_bytes = len(frame)
        self._session_epoch_at, self._offset_at = layout
        self._head = frame[_HEAD_AT : layout.session_epoch_at].tobytes()
        self._middle = frame[layout.session_epoch_at + 4 : layout.offset_at].tobytes()
        self._rest = frame[layout.offset_at + 8 :].tobytes()
        self._before, self._after, self._tail = shape
        answer = Struct(f">ii{len(shape.before)}sqqq{len(shape.after)}s")
        self._pack = answer.pack
        self._pack_size_bytes = answer.size
        self._partition = partition
        self._wanted = wanted
        self._session = session
        (self._session_epoch,) = _UNPACK_EPOCH(frame, layout.session_epoch_at)
        self._bytes_min = bytes_min
        self._bytes_max = bytes_max
        self._is_committed_only = is_committed_only
        self._is_flexible = is_flexible

    def is_for(self, frame: memoryview) -> bool:
        """Whether a request asks for the same in all but the offset and the epoch of the session."""
        return (
            len(frame) == self._frame_bytes
            and _UNPACK_API(frame)[0] == self._api
            and frame[_HEAD_AT : self._session_epoch_at].tobytes() == self._head
            and frame[self._session_epoch_at + 4 : self._offset_at].tobytes() == self._middle
            and frame[self._offset_at + 8 :].tobytes() == self._rest
        )

    def __call__(self, frame: memoryview) -> Response | None:
        """The answer to a request like the one before it, or None with nothing done."""
        if not self.is_for(frame):
            return None
        handler = self._handler
        partition = self._partition
        wanted = self._wanted
        known_epoch = wanted.current_leader_epoch
        quotas = handler.quotas
        if (
            partition.leader is None
            or partition.is_gone
            or (known_epoch >= 0 and known_epoch != partition.epoch)
            or (quotas is not None and quotas.is_limiting)
        ):
            return None
        (epoch,) = _UNPACK_EPOCH(frame, self._session_epoch_at)
        if self._session is None:
            if epoch != self._session_epoch:
                return None
        elif not handler.sessions.has_only(self._session, epoch, wanted.key):
            return None
        started_s = handler.clock.monotonic()
        (offset,) = _UNPACK_OFFSET(frame, self._offset_at)
        return self._read(partition, frame, offset, started_s)

    def _read(self, partition: Partition, frame: memoryview, offset: int, started_s: float) -> Response | None:
        log = partition.log
        high_watermark = partition.high_watermark
        last_stable_offset = partition.stable_below(high_watermark)
        end_offset = last_stable_offset if self._is_committed_only else high_watermark
        if not log.start_offset <= offset < end_offset or not log.is_warm(offset, self._bytes_max):
            return None
        try:
            if parting_of(partition, offset, self._wanted.last_fetched_epoch) is not None:
                return None
            found = log.read(offset, self._bytes_max, end_offset=end_offset)
            if found.size_bytes < self._bytes_min or found.unverified:
                return None
            if not found.file.is_cached(found.position, found.size_bytes):
                return None
        except (ApiError, OSError):
            return None  # the ordinary way finds the same and says what
        if self._is_committed_only and log.aborted_transactions(offset, found.offset_bound, may_wait=False) != []:
            return None
        size_bytes = found.size_bytes
        log.fetched_bytes += size_bytes
        if self._session is not None:
            self._go_on(self._session, offset, high_watermark, log.start_offset)
        size = _varint(size_bytes + 1) if self._is_flexible else size_bytes.to_bytes(4, "big")
        (correlation_id,) = _UNPACK_CORRELATION(frame, _CORRELATION_AT)
        tail = self._tail
        head: bytes = self._pack(
            self._pack_size_bytes - 4 + len(size) + size_bytes + len(tail),
            correlation_id,
            self._before,
            high_watermark,
            last_stable_offset,
            log.start_offset,
            self._after,
        )
        counts = self._handler.counts
        counts.received += 1
        counts.ended(started_s)
        records = FileRange(found.file, found.position, size_bytes)
        answer: list[bytes | FileRange] = [head + size, records]
        if tail:
            answer.append(tail)
        return answer

    def _go_on(self, session: FetchSession, offset: int, high_watermark: int, log_start_offset: int) -> None:
        """The session is one request further."""
        self._handler.sessions.go_on(session, self._handler.clock.monotonic())
        item, wanted = session.partitions[self._wanted.key], self._wanted
        item.fetch_offset = offset
        item.max_bytes = wanted.max_bytes
        item.current_leader_epoch = wanted.current_leader_epoch
        item.last_fetched_epoch = wanted.last_fetched_epoch
        item.told_high_watermark = high_watermark
        item.told_log_start_offset = log_start_offset
        item.told_error = False


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
