"""What compaction leaves of one batch: all of it, some of its records, its header alone, or nothing.

A record stays if no later one has its key. A *tombstone* (a key without a value) and a marker that nothing needs any
more stay a while longer, so that whoever reads the log slowly hears of them: the first pass that finds one writes down
in the batch when it may go (its *delete horizon*: a bit of the attributes, and the time in the place of the base
timestamp), and a pass after that time takes it. Offsets never change, nor the range of offsets that a batch stands for.

The last batch of every producer stays, if need be without records: its sequence number tells a retry. So does the last
batch of all that is compacted: it tells where the log goes on.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import compress as selected
from struct import error as StructError
from typing import NamedTuple

from penstock.base.crc import crc32c
from penstock.base.world import Buffer
from penstock.log.compaction_transactions import CleanedTransactions
from penstock.wire._keys import KeyMap, copy_kept, largest_kept
from penstock.wire._records import RECORD_OVERHEAD_MAX, encode
from penstock.wire.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CRC_OFFSET,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
)
from penstock.wire.compression import Compression, compress
from penstock.wire.records import RecordColumns, RecordError, record_area

COLUMNS_MIN = 1024


class LastOfProducer(NamedTuple):
    """Which batch a producer is remembered by: the one with this last offset, or (-1) a marker of this epoch."""

    last_offset: int
    epoch: int


@dataclass(slots=True)
class RemovedRecords:
    """How many records went, and why."""

    superseded: int = 0
    tombstones: int = 0
    without_key: int = 0
    aborted: int = 0
    markers: int = 0

    @property
    def total(self) -> int:
        return self.superseded + self.tombstones + self.without_key + self.aborted + self.markers

    def __str__(self) -> str:
        return (
            f"{self.superseded} superseded, {self.tombstones} tombstones, {self.aborted} of aborted transactions, "
            f"{self.markers} markers, {self.without_key} without a key"
        )


class Inside:
    """The records of a batch as columns, in memory that is used again for the next batch."""

    __slots__ = ("_capacity", "area", "columns", "count")

    def __init__(self) -> None:
        self._capacity = COLUMNS_MIN
        self.columns = RecordColumns.allocate(COLUMNS_MIN)
        self.area: Buffer = b""
        self.count = 0

    def read(self, header: BatchHeader, batch: memoryview) -> None:
        """RecordError if the inside of the batch is not what the header says."""
        self.area = area = record_area(batch, header)
        self.count = count = header.record_count
        if count > self._capacity and count <= len(area):
            self._capacity = count + count // 2
            self.columns = RecordColumns.allocate(self._capacity)
        columns = self.columns
        columns.scan(area, count)
        if count and columns.offset_delta[count - 1] > header.last_offset_delta:
            raise RecordError(f"an offset delta after the last, {header.last_offset_delta}")


def delete_horizon_of(header: BatchHeader) -> int | None:
    """When the tombstones, or the marker, of a batch may go; None if no pass has written it down yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


@dataclass(slots=True)
class BatchFilter:
    """Decides about every batch of one pass, in order from the beginning of the log."""

    keys: KeyMap
    transactions: CleanedTransactions
    producers: Mapping[int, LastOfProducer]
    end_offset: int  # where what is compacted ends
    now_ms: int
    delete_retention_ms: int
    removed: RemovedRecords = field(default_factory=RemovedRecords)
    _inside: Inside = field(default_factory=Inside)
    _kept: bytearray = field(default_factory=lambda: bytearray(COLUMNS_MIN))
    _out: bytearray = field(default_factory=bytearray)  # used again: fresh memory is slow

    def apply(self, header: BatchHeader, batch: memoryview) -> tuple[int, Buffer] | None:
        """The largest timestamp and the bytes of what stays, None if nothing does. An untouched batch is returned."""
        if header.is_control:
            return self._marker(header, batch)
        is_aborted = self.transactions.note(header)
        if is_aborted or header.record_count == 0:
            self.removed.aborted += header.record_count
            return self._emptied(header)
        if header.base_offset > self.keys.latest_offset:
            return header.max_timestamp, batch
        try:
            self._inside.read(header, batch)
        except RecordError:  # nobody can tell what is in it, so nobody can say that it is not needed
            return header.max_timestamp, batch
        try:
            return self._records(header, batch)
        except (OverflowError, StructError):  # times that no number of 64 bits can say
            return header.max_timestamp, batch

    def _marker(self, header: BatchHeader, batch: memoryview) -> tuple[int, Buffer] | None:
        may_go = self.transactions.note_marker(header, batch)
        horizon = delete_horizon_of(header)
        if header.record_count == 0 or (may_go and horizon is not None and horizon <= self.now_ms):
            self.removed.markers += header.record_count
            return self._emptied(header)
        if not may_go or horizon is not None:
            return header.max_timestamp, batch
        try:
            self._inside.read(header, batch)
        except RecordError:
            return header.max_timestamp, batch
        return self._with_horizon(header, bytearray(b"\1" * self._inside.count), self._inside.count)

    def _emptied(self, header: BatchHeader) -> tuple[int, Buffer] | None:
        """The header alone where it is still needed."""
        if not self._is_last_of_producer(header) and header.next_offset != self.end_offset:
            return None
        attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
        return header.max_timestamp, _sealed(header, b"", 0, attributes, NO_TIMESTAMP, header.max_timestamp)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _records(self, header: BatchHeader, batch: memoryview) -> tuple[int, Buffer] | None:
        inside, columns = self._inside, self._inside.columns
        count = inside.count
        if len(self._kept) < count:
            self._kept = bytearray(count)
        horizon = delete_horizon_of(header)
        counts = array("q", bytes(40))
        self.keys.select(
            inside.area,
            count,
            columns.key_start,
            columns.key_length,
            columns.value_length,
            columns.offset_delta,
            header.base_offset,
            horizon is None or self.now_ms < horizon,
            self._kept,
            counts,
        )
        kept_count, kept_tombstones, superseded, tombstones, without_key = counts
        self.removed.superseded += superseded
        self.removed.tombstones += tombstones
        self.removed.without_key += without_key
        if kept_count == 0:
            return self._emptied(header)
        if kept_tombstones and horizon is None:
            return self._with_horizon(header, self._kept, kept_count)
        if kept_count == count:
            return header.max_timestamp, batch
        if len(self._out) < len(inside.area):
            self._out = bytearray(len(inside.area))
        size_bytes = copy_kept(self._out, inside.area, count, self._kept, columns.headers_end)
        max_timestamp = self._max_timestamp(header, self._kept)
        area = memoryview(self._out)[:size_bytes]
        return max_timestamp, _sealed(header, area, kept_count, header.attributes, header.base_timestamp, max_timestamp)

    def _max_timestamp(self, header: BatchHeader, kept: bytearray) -> int:
        if header.attributes & LOG_APPEND_TIME:
            return header.max_timestamp
        return header.base_timestamp + largest_kept(self._inside.count, kept, self._inside.columns.timestamp_delta)

    def _with_horizon(self, header: BatchHeader, kept: bytearray, kept_count: int) -> tuple[int, Buffer]:
        """The records that stay, in a batch that says when tombstones, or a marker, may go from it."""
        inside, columns = self._inside, self._inside.columns
        horizon = self.now_ms + self.delete_retention_ms
        shift = header.base_timestamp - horizon  # the base timestamp is the horizon now; the deltas make up for it
        marks = memoryview(kept)[: inside.count]
        size_bytes_max = len(inside.area) + RECORD_OVERHEAD_MAX * kept_count
        out = bytearray(size_bytes_max)
        size_bytes = encode(
            out,
            kept_count,
            array("q", [delta + shift for delta in selected(columns.timestamp_delta, marks)]),
            array("i", selected(columns.offset_delta, marks)),
            inside.area,
            array("i", selected(columns.key_start, marks)),
            array("i", selected(columns.key_length, marks)),
            inside.area,
            array("i", selected(columns.value_start, marks)),
            array("i", selected(columns.value_length, marks)),
            inside.area,
            array("i", selected(columns.headers_start, marks)),
            array("i", selected(columns.headers_end, marks)),
        )
        max_timestamp = self._max_timestamp(header, kept)
        area = memoryview(out)[:size_bytes]
        attributes = header.attributes | DELETE_HORIZON
        return max_timestamp, _sealed(header, area, kept_count, attributes, horizon, max_timestamp)


def _sealed(
    header: BatchHeader, area: Buffer, count: int, attributes: int, base_timestamp: int, max_timestamp: int
) -> bytes:
    """A batch like another one, with other records in it, compressed as it was."""
    codec = Compression(attributes & COMPRESSION_MASK)
    body = area if codec is Compression.NONE else compress(codec, area)
    head = HEADER.pack(
        *header.replace(
            length=HEADER_SIZE - LOG_OVERHEAD + len(body),
            crc=0,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=count,
        )
    )
    crc = crc32c(body, crc32c(head[ATTRIBUTES_OFFSET:]))
    return b"".join((head[:CRC_OFFSET], crc.to_bytes(4, "big"), head[ATTRIBUTES_OFFSET:], body))
