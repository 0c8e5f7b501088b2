"""Arrow into record batches: rows go in, batches for each partition come out, ready to be sealed.

Rows are worked on in blocks. For each block the loops find where every row's fields lie, choose its partition (the
given one; else by the hash of its key, as the Java client does; else the partition whose turn it is, which takes whole
runs of rows so that batches become large), and sort the rows by partition. The rows of a partition are then written
behind those that its open batch has already, and a batch that is full is handed out. Rows of one partition keep their
order.

Open batches of all partitions together are bounded too: beyond that they are handed out before they are full.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import randrange

import pyarrow as pa

from penstock.columnar._rows import NO_ROW, fit, size_alone
from penstock.columnar.errors import ColumnarError, RecordTooLarge
from penstock.columnar.row_block import ROWS_MAX, RowBlock, size_beyond_reach
from penstock.columnar.row_columns import RowColumns
from penstock.wire._records import encode
from penstock.wire.batch import HEADER_SIZE
from penstock.wire.compression import Compression, compress

__all__ = ["EncodedBatch", "Encoder"]

_OPEN_BYTES_MAX = 64 * 1024 * 1024
_LENGTH_SIZE_MAX = 5  # what the writing loop wants free for the length of a record, however short it is
_AREA_SIZE_MIN = 4 * 1024
_AREA_SIZE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The records of one batch, compressed; whoever sends it puts the header before it."""

    partition: int
    records: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Encoder:
    """Turns rows of one topic into batches. `batch_bytes_max` counts the header, and the records before compression."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        *,
        batch_bytes_max: int,
        compression: Compression,
        record_bytes_max: int,
        now_ms: Callable[[], int] = _now_ms,
        first_partition: int | None = None,
    ) -> None:
        if partitions < 1:
            raise ValueError(f"a topic has partitions, not {partitions}")
        if not (HEADER_SIZE < batch_bytes_max < 2**31 and HEADER_SIZE < record_bytes_max < 2**31):
            raise ValueError(f"batches of {batch_bytes_max} and records of {record_bytes_max} bytes cannot be")
        self._topic = topic
        self._partitions = partitions
        self._area_bytes_max = batch_bytes_max - HEADER_SIZE
        self._record_bytes_max = record_bytes_max
        self._compression = compression
        self._now_ms = now_ms
        first = randrange(partitions) if first_partition is None else first_partition
        self._run = array("q", (first, batch_bytes_max, batch_bytes_max))
        self._block = RowBlock(partitions)
        self._loops = _Loops()
        self._open: dict[int, _OpenBatch] = {}
        self._rows_before = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[EncodedBatch]:
        """Take rows, by the names of their columns, and hand out the batches that are full then."""
        now_ms = self._now_ms()
        columns = RowColumns.of(self._topic, rows, now_ms)
        first = 0
        while first < columns.count:
            self._load(columns, first, now_ms)
            for partition, begin, end in self._block.sort():
                yield from self._write(partition, begin, end)
            if sum(batch.size_bytes for batch in self._open.values()) > _OPEN_BYTES_MAX:
                yield from self.flush()
            first += self._block.count
            self._rows_before += self._block.count

    def flush(self) -> Iterator[EncodedBatch]:
        """All batches that are open, full or not."""
        for batch in self._open.values():
            if batch.count:
                yield batch.close()

    def _load(self, columns: RowColumns, first: int, now_ms: int) -> None:
        """A block of rows with their partitions, or the error that one of them is."""
        block = self._block
        beyond_bytes = size_beyond_reach(columns, first)
        if beyond_bytes is not None:
            raise RecordTooLarge(self._place(0), beyond_bytes, self._record_bytes_max)
        row = block.load(columns, first, now_ms)
        if row != NO_ROW:
            raise ColumnarError(f"{self._place(row)}: the column 'headers' has a header without a key")
        row = block.first_too_large(self._record_bytes_max - HEADER_SIZE)
        if row != NO_ROW:
            size_bytes = HEADER_SIZE + size_alone(*block.sizes(row))
            raise RecordTooLarge(self._place(row), size_bytes, self._record_bytes_max)
        row = block.choose(self._run)
        if row != NO_ROW:
            raise ColumnarError(
                f"{self._place(row)}: the column 'partition' says {block.given_partition(row)}, "
                f"the topic has {self._partitions} partitions, from 0 on"
            )

    def _place(self, row: int) -> str:
        return f"topic {self._topic}, row {self._rows_before + row}"

    def _write(self, partition: int, first: int, last: int) -> Iterator[EncodedBatch]:
        """Rows of one partition into its open batch, and into the next ones when it is full."""
        batch = self._open.get(partition)
        if batch is None:
            batch = self._open[partition] = _OpenBatch(partition, self._compression, self._area_bytes_max)
        first += batch.append(self._block, first, last, self._loops)
        while first < last:
            yield batch.close()
            first += batch.append(self._block, first, last, self._loops)


class _Loops:
    """What the loops need beside the rows: room for their results, and the ascending numbers of records in a batch."""

    def __init__(self) -> None:
        self.timestamp_delta = array("q", bytes(8 * ROWS_MAX))
        self.found = array("q", (0, 0))
        self._ascending = memoryview(array("i", range(ROWS_MAX)))

    def offset_delta(self, first: int, last: int) -> memoryview:
        if last > len(self._ascending):
            self._ascending = memoryview(array("i", range(2 * last)))
        return self._ascending[first:last]


class _OpenBatch:
    """The records of a partition that wait for more."""

    def __init__(self, partition: int, codec: Compression, area_bytes_max: int) -> None:
        self._partition = partition
        self._codec = codec
        self._area_bytes_max = area_bytes_max
        self._memory = memoryview(b"")
        self._room_hint = _AREA_SIZE_MIN
        self._begin()

    def _begin(self) -> None:
        self.count = 0
        self.size_bytes = 0
        self._base_timestamp = 0
        self._max_timestamp = 0

    def append(self, block: RowBlock, first: int, last: int, loops: _Loops) -> int:
        """Write as many of the rows as fit. A row that is larger than a batch may be gets one of its own."""
        if self.count == 0:
            self._base_timestamp = self._max_timestamp = block.fields.timestamp[first]
        count = self._fit(block, first, last, loops, self._area_bytes_max - self.size_bytes)
        if count == 0 and self.count == 0:
            count = self._fit(block, first, first + 1, loops, _AREA_SIZE_MAX)
        if count == 0:
            return 0
        size_bytes, latest = loops.found
        self._reserve(self.size_bytes + size_bytes + _LENGTH_SIZE_MAX)
        self.size_bytes += self._encode(block, first, count, loops)
        self.count += count
        self._max_timestamp = max(self._max_timestamp, latest)
        return count

    def _fit(self, block: RowBlock, first: int, last: int, loops: _Loops, room: int) -> int:
        fields = block.fields
        return fit(
            fields.timestamp,
            self._base_timestamp,
            first,
            last,
            self.count,
            fields.key_length,
            fields.value_length,
            fields.headers_start,
            fields.headers_end,
            room,
            loops.timestamp_delta,
            loops.found,
        )

    def _encode(self, block: RowBlock, first: int, count: int, loops: _Loops) -> int:
        fields = block.fields
        rows = slice(first, first + count)
        return encode(
            self._memory[self.size_bytes :],
            count,
            loops.timestamp_delta,
            loops.offset_delta(self.count, self.count + count),
            block.keys,
            fields.key_start[rows],
            fields.key_length[rows],
            block.values,
            fields.value_start[rows],
            fields.value_length[rows],
            block.headers,
            fields.headers_start[rows],
            fields.headers_end[rows],
        )

    def _reserve(self, size_bytes: int) -> None:
        if size_bytes > len(self._memory):
            room = max(size_bytes, 2 * len(self._memory), self._room_hint)
            memory = memoryview(pa.allocate_buffer(room)).cast("B")
            memory[: self.size_bytes] = self._memory[: self.size_bytes]
            self._memory = memory

    def close(self) -> EncodedBatch:
        """What there is, as a batch; the next one begins."""
        records = self._memory[: self.size_bytes]
        if self._codec is Compression.NONE:
            self._room_hint = len(self._memory)
            self._memory = memoryview(b"")  # this one is given away
        else:
            records = memoryview(compress(self._codec, records))
        batch = EncodedBatch(self._partition, records, self.count, self._base_timestamp, self._max_timestamp)
        self._begin()
        return batch
