"""Reading one range of one partition, from whoever leads it, as Arrow batches.

    for rows in RangeReader(cluster, TopicPartition("orders", 0), 0, 1_000_000, ColumnChoice(), committed=True):
        …

One fetch is under way while the answer before it is decoded, so the broker and we work at the same time, and no more
than two answers are held. The position moves only with whole batches that were received: after a lost connection or a
change of the leader the same position is asked for again, of the new leader, and nothing is lost or doubled.

Offsets without a record (compacted away, markers of transactions, aborted records) are passed over. A topic that was
deleted and made anew is another topic: its id tells.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID, TopicPartition
from penstock.columnar.cluster import Cluster
from penstock.columnar.connection import FETCH_BYTES_MAX, Pending
from penstock.columnar.decode import ColumnChoice, Decoder
from penstock.columnar.errors import ColumnarError, NotWrittenYet, OffsetsGone, TopicGone, check, error_of
from penstock.columnar.offsets import EARLIEST, LATEST, offsets_at
from penstock.wire.messages import k01_fetch
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)

FETCH_BYTES = 16 << 20
#: Asked for even where little is expected.
FETCH_BYTES_MIN = 256 << 10
ROWS_MAX = 1 << 17
BATCH_BYTES_MAX = 32 << 20
#: How large a record is taken to be, before any was seen.
_RECORD_BYTES_GUESSED = 1024
#: What was seen so far is no promise for what comes.
_MARGIN = 1.25
_TOPIC_IDS_SINCE = 13
_NO_SESSION = -1
#: For so long answers have no record, or half of the deadline, before that is taken for a gap up to the end of the
#: range: brokers that fetch old records from elsewhere also answer like this for a while.
GAP_S = 10.0


class RangeReader:
    """See the head of this file; it is iterated once.

    `topic_id` is that of the topic the range was planned for; without it, the topic of that name is read as it is when
    reading begins. With `committed`, records of open and aborted transactions are not seen.
    """

    def __init__(
        self,
        cluster: Cluster,
        where: TopicPartition,
        start: int,
        end: int,
        columns: ColumnChoice,
        *,
        committed: bool,
        topic_id: UUID | None = None,
        fetch_bytes: int = FETCH_BYTES,
        rows_max: int = ROWS_MAX,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        self.where = where
        self.position = start
        """the next offset to be received"""
        self.received_bytes = 0
        """of records, as they came"""
        self._start = start
        self._end = end
        self._cluster = cluster
        self._committed = committed
        self._topic_id = topic_id or NO_ID
        self._fetch_bytes = fetch_bytes
        self._fetch_bytes_min = FETCH_BYTES_MIN
        self._asked_bytes = 0
        self._decoder = Decoder(where, columns, rows_max=rows_max, bytes_max=batch_bytes_max)
        self._pending: Pending | None = None
        self._progress_s = time.monotonic()
        self._empty_since_s: float | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """OffsetsGone, TopicGone, NotWrittenYet, and what `Cluster.retry` raises."""
        self._progress_s = time.monotonic()
        try:
            while self.position < self._end:
                try:
                    self._take(self._next_answer())
                except ColumnarError:
                    yield from self._decoder.take(all=True)  # what was received before is no less true
                    raise
                if self.position < self._end:
                    self._send_early()
                yield from self._decoder.take()
            yield from self._decoder.take(all=True)
        finally:
            self._pending = None

    # ── one answer ───────────────────────────────────────────────────────────────────────────────────────────────

    def _next_answer(self) -> FetchResponsePartition | None:
        """None where the broker has nothing to say of the partition, as when it holds us back."""
        return self._cluster.retry(self._attempt, f"read {self.where}")

    def _attempt(self) -> FetchResponsePartition | None:
        pending, self._pending = self._pending, None
        try:
            if pending is None:
                pending = self._send()
            answer = self._partition_of(pending.wait())
        except (OSError, ApiError):
            self._cluster.stale(self.where)
            raise
        if answer is not None and answer.error_code:
            raise self._refusal(answer)
        return answer

    def _partition_of(self, answer: FetchResponse) -> FetchResponsePartition | None:
        check(answer.error_code)
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.partition_index == self.where.partition:
                    return partition
        return None

    def _refusal(self, answer: FetchResponsePartition) -> Exception:
        error = error_of(answer.error_code)
        if error == Error.OFFSET_OUT_OF_RANGE:
            return self._out_of_range()
        self._cluster.stale(self.where)
        leader = answer.current_leader
        self._cluster.learn_leader(self.where, leader.leader_id, leader.leader_epoch)
        return ApiError(error, f"{self.where}: {error.text}")

    def _out_of_range(self) -> OffsetsGone:
        first = offsets_at(self._cluster, [self.where], EARLIEST, committed=False)[self.where] or 0
        last = offsets_at(self._cluster, [self.where], LATEST, committed=False)[self.where] or 0
        return OffsetsGone(self.where, self.position, first, last)

    def _take(self, answer: FetchResponsePartition | None) -> None:
        """Hand the records over to the decoder, and move on."""
        if answer is None:
            self._check_patience(self.position)
            return
        records = memoryview(answer.records) if answer.records is not None else memoryview(b"")
        before = self.position
        if len(records):
            aborted = [(row.producer_id, row.first_offset) for row in answer.aborted_transactions or ()]
            self.received_bytes += len(records)
            self.position = self._decoder.add(
                records, start=before, end=self._end, aborted=aborted if self._committed else None
            )
        if self.position > before:
            self._progress_s, self._empty_since_s = time.monotonic(), None
        elif len(records):
            self._ask_for_more(len(records))
        else:
            self._take_nothing(answer)

    def _take_nothing(self, answer: FetchResponsePartition) -> None:
        """An answer without records: not written yet, or a gap up to where all is known to be."""
        limit = answer.last_stable_offset if self._committed else answer.high_watermark
        now_s = time.monotonic()
        if self._end > limit:
            self._empty_since_s = None
            self._check_patience(limit)
        elif self._empty_since_s is None:
            self._empty_since_s = now_s
        elif now_s - self._empty_since_s >= min(GAP_S, self._cluster.settings.deadline_s / 2):
            self.position = self._end

    def _check_patience(self, limit: int) -> None:
        waited_s = time.monotonic() - self._progress_s
        if waited_s >= self._cluster.settings.deadline_s:
            raise NotWrittenYet(self.where, self._end, limit, waited_s, self._committed)

    def _ask_for_more(self, received_bytes: int) -> None:
        """Not even one batch was whole, which happens only where less was asked for than it has."""
        if received_bytes < self._asked_bytes or received_bytes >= FETCH_BYTES_MAX // 2:
            raise ColumnarError(
                f"topic {self.where.topic}, partition {self.where.partition}: the batch at offset {self.position} "
                f"is not whole in an answer of {received_bytes} bytes"
            )
        self._fetch_bytes = self._fetch_bytes_min = 2 * received_bytes

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _send_early(self) -> None:
        """So that the broker works while we decode. What goes wrong is met when the answer is needed."""
        try:
            self._pending = self._cluster.once(self._send)
        except (OSError, ApiError):
            self._pending = None

    def _send(self) -> Pending:
        connection = self._cluster.leader(self.where)
        self._check_topic()
        version = connection.version_of(k01_fetch.API)
        if self._topic_id == NO_ID:
            version = connection.version_of(k01_fetch.API, _TOPIC_IDS_SINCE - 1)
        self._asked_bytes = size_bytes = self._bytes_wanted()
        partition = FetchRequestPartition(
            partition=self.where.partition,
            current_leader_epoch=self._cluster.leader_epoch(self.where),
            fetch_offset=self.position,
            partition_max_bytes=size_bytes,
        )
        request = FetchRequest(
            max_wait_ms=self._cluster.settings.fetch_wait_ms,
            min_bytes=1,
            max_bytes=size_bytes,
            isolation_level=int(self._committed),
            session_epoch=_NO_SESSION,
            topics=[FetchRequestTopic(topic=self.where.topic, topic_id=self._topic_id, partitions=[partition])],
        )
        return connection.send(request, version)

    def _check_topic(self) -> None:
        known = self._cluster.topic_id(self.where)
        if self._topic_id == NO_ID:
            self._topic_id = known
        elif known not in (NO_ID, self._topic_id):
            raise TopicGone(self.where.topic, "it was deleted and made anew: what was to be read is gone")

    def _bytes_wanted(self) -> int:
        """No more than the rest of the range is likely to be."""
        offsets = self.position - self._start
        record_bytes = self.received_bytes / offsets * _MARGIN if offsets else _RECORD_BYTES_GUESSED
        expected = int((self._end - self.position) * record_bytes)
        return min(self._fetch_bytes, max(self._fetch_bytes_min, expected))
