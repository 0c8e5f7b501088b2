"""Record batches into Arrow: the answers of fetches to one partition go in, columns of rows come out.

`add` looks at headers only: it says which offset to fetch next, so that the next fetch can travel while this answer is
decoded. `take` then works through what was added, run by run: a run is some batches that are plain, or one that needs a
closer look (compressed, of a transaction, wrong). The fields of a run's rows are found, and the rows copied into the
buffers of one Arrow batch until that is full. Nothing is decoded before it is asked for, so memory holds the answers
that were added, one decompressed batch and one Arrow batch, however long the partition is.

What comes from a broker may be anything: sizes are checked before memory is taken, and whatever is wrong is a
`ColumnarError` that names the partition and the offset.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.base.identifiers import TopicPartition
from penstock.base.world import Buffer
from penstock.columnar._columns import BASE_OFFSET_MAX, DONE, FULL, LOOK, rows_within, scan_batch, scan_batches
from penstock.columnar.errors import ColumnarError
from penstock.columnar.row_buffers import RowBuffers, RowFields
from penstock.wire._records import RECORD_SIZE_MIN
from penstock.wire.batch import (
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    BatchHeader,
    each_batch,
    problem_of_batch,
    read_header,
)
from penstock.wire.compression import Inflater
from penstock.wire.control import ControlType, read_control_record
from penstock.wire.records import AREA_SIZE_BYTES_MAX, RecordError, record_area

__all__ = ["SCHEMA", "SCHEMA_WITH_HEADERS", "ColumnChoice", "Decoder"]

_RUN_ROWS_MAX = 16 * 1024  # of which the fields are found before they are copied
_AREA_KEPT_BYTES_MAX = 16 * 1024 * 1024  # room for so many inflated bytes is kept for the next batch


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Which of the columns that cost something there are; those of topic, place and time are always there."""

    key: bool = True
    value: bool = True
    headers: bool = False

    @property
    def schema(self) -> pa.Schema:
        left_out = {name for name in ("key", "value", "headers") if not getattr(self, name)}
        return pa.schema([field for field in SCHEMA_WITH_HEADERS if field.name not in left_out])


SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(
    pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
)


class _Answer(NamedTuple):
    """What one fetch brought, and which of it is wanted. `aborted`: (producer id, first offset) of each transaction."""

    records: memoryview
    start: int
    end: int
    aborted: Sequence[tuple[int, int]] | None


class Decoder:
    """Turns the batches of one partition into Arrow batches of bounded size, in the order of their offsets."""

    def __init__(self, where: TopicPartition, columns: ColumnChoice, *, rows_max: int, bytes_max: int) -> None:
        if not (0 < rows_max < 2**31 and 0 < bytes_max < 2**31):
            raise ValueError(f"a batch of at most {rows_max} rows and {bytes_max} bytes cannot be")
        self._where = where
        self._columns = columns
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._answers: deque[_Answer] = deque()
        self._runs: Iterator[_Run] = iter(())
        self._run: _Run | None = None
        self._fields = RowFields.allocate(_RUN_ROWS_MAX)
        self._inflater = Inflater(size_bytes_max=AREA_SIZE_BYTES_MAX, kept_bytes_max=_AREA_KEPT_BYTES_MAX)
        self._rows = RowBuffers(where, columns.schema)

    def add(self, records: memoryview, *, start: int, end: int, aborted: Sequence[tuple[int, int]] | None) -> int:
        """Take the batches of one fetch answer, of which the rows with start <= offset < end are wanted.

        `aborted` are the answer's aborted transactions (producer id, first offset), None to read uncommitted rows too.
        Returns the offset to fetch next. An incomplete batch at the end is left for the next fetch: if it is the only
        one, that is `start` again.
        """
        following = self._following(records, start, end)
        self._answers.append(_Answer(records, start, end, aborted))
        return following

    def take(self, *, all: bool = False) -> Iterator[pa.RecordBatch]:
        """The Arrow batches that are full; with `all`, the rows that are left as well. May be left and begun anew."""
        while self._fill():
            yield self._rows.finish()
        if all and self._rows.count:
            yield self._rows.finish()

    def _following(self, records: memoryview, start: int, end: int) -> int:
        following = start
        position = 0
        last_before: int | None = None
        for header, batch in each_batch(records):
            if header.magic != MAGIC:
                raise self._bad(start, f"message format {header.magic} is not read, only {MAGIC}")
            if last_before is not None and header.base_offset <= last_before:
                raise self._bad(header.base_offset, f"a batch that follows offset {last_before}")
            if not 0 <= header.base_offset <= BASE_OFFSET_MAX or header.last_offset_delta < 0:
                raise self._bad(header.base_offset, f"a batch that ends {header.last_offset_delta} offsets later")
            if header.base_offset >= end:
                return max(following, header.base_offset)
            last_before = header.last_offset
            following = max(following, header.next_offset)
            position += len(batch)
        self._check_rest(records[position:], following)
        return following

    def _check_rest(self, rest: memoryview, offset: int) -> None:
        """What is left may be the beginning of a batch, but not something else."""
        if len(rest) > MAGIC_OFFSET and rest[MAGIC_OFFSET] != MAGIC:
            raise self._bad(offset, f"message format {rest[MAGIC_OFFSET]} is not read, only {MAGIC}")
        if len(rest) >= LOG_OVERHEAD:
            length = int.from_bytes(rest[LENGTH_OFFSET:LOG_OVERHEAD], "big", signed=True)
            if length < HEADER_SIZE - LOG_OVERHEAD:
                raise self._bad(offset, f"a batch of {length} bytes")

    def _fill(self) -> bool:
        """Copy rows until the Arrow batch is full; False if the rows are used up before."""
        while True:
            if self._run is None:
                self._run = self._next_run()
                if self._run is None:
                    return False
            if self._copy(self._run):
                return True
            self._run = None

    def _copy(self, run: _Run) -> bool:
        """Copy what has room of a run. Is the Arrow batch full now?"""
        fields, columns = run.fields, self._columns
        if run.first < run.last:
            last = rows_within(
                fields.key_length,
                fields.value_length,
                fields.headers_start,
                fields.headers_end,
                run.first,
                min(run.last, run.first + self._rows_max - self._rows.count),
                columns.key,
                columns.value,
                columns.headers,
                self._bytes_max - self._rows.size_bytes,
            )
            if self._rows.count == 0:
                last = max(last, run.first + 1)  # a row that is larger than a batch may be is one of its own
            self._rows.append(run.area, fields, run.first, last)
            run.first = last
        return run.first < run.last or self._rows.count == self._rows_max

    def _next_run(self) -> _Run | None:
        while True:
            run = next(self._runs, None)
            if run is not None:
                return run
            if not self._answers:
                return None
            self._runs = self._wanted(self._answers.popleft())

    def _wanted(self, answer: _Answer) -> Iterator[_Run]:
        """The rows of an answer that are to be seen."""
        records, start, end, aborted = answer
        transactions = _AbortedTransactions(aborted) if aborted else None
        fields = self._fields
        reached = array("q", (0, 0))
        state = FULL
        while state != DONE:
            state = scan_batches(
                records, records, reached[0], start, end, transactions is not None, reached, *fields.columns()
            )
            position, rows = reached
            if rows:
                yield _run(records, fields, rows, answer)
            elif state == LOOK:
                header = read_header(records, position)
                reached[0] = position + header.size_bytes
                run = self._look(header, records[position : reached[0]], answer, transactions)
                if run is not None:
                    yield run

    def _look(
        self, header: BatchHeader, batch: memoryview, answer: _Answer, transactions: _AbortedTransactions | None
    ) -> _Run | None:
        """One batch that is compressed, large, of a transaction, or wrong."""
        problem = problem_of_batch(batch, header)
        if problem is not None:
            raise self._bad(header.base_offset, problem)
        try:
            if transactions is not None and transactions.hide(header, batch):
                return None
            if header.is_control or header.record_count == 0:
                return None
            area = record_area(batch, header, inflater=self._inflater)
            fields = self._room_for_fields(area, header.record_count)
            scan_batch(area, 0, len(area), header, 0, *fields.columns())
        except RecordError as error:
            raise self._bad(header.base_offset, str(error)) from None
        return _run(area, fields, header.record_count, answer)

    def _room_for_fields(self, area: Buffer, count: int) -> RowFields:
        if count > len(area) // RECORD_SIZE_MIN:
            raise RecordError(f"{len(area)} bytes cannot hold {count} records")
        return self._fields if count <= _RUN_ROWS_MAX else RowFields.allocate(count)

    def _bad(self, offset: int, problem: str) -> ColumnarError:
        topic, partition = self._where
        return ColumnarError(f"topic {topic}, partition {partition}, offset {offset}: bad records: {problem}")


@dataclass(slots=True)
class _Run:
    """Some rows whose fields are found, and which of them are still to be copied."""

    area: Buffer
    fields: RowFields
    first: int
    last: int


def _run(area: Buffer, fields: RowFields, rows: int, answer: _Answer) -> _Run:
    first = bisect_left(fields.offset, answer.start, 0, rows)
    return _Run(area, fields, first, bisect_left(fields.offset, answer.end, first, rows))


class _AbortedTransactions:
    """Which producers' rows are not to be seen: from the first offset of an aborted transaction to its marker."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._producers: set[int] = set()

    def hide(self, header: BatchHeader, batch: memoryview) -> bool:
        """Called for every batch in turn. Are the rows of this one to be left out?"""
        while self._to_come and self._to_come[0][1] <= header.last_offset:
            self._producers.add(self._to_come.popleft()[0])
        if header.producer_id not in self._producers:
            return False
        if not header.is_control:
            return header.is_transactional
        if header.record_count and read_control_record(batch).type is ControlType.ABORT:
            self._producers.discard(header.producer_id)
        return True
