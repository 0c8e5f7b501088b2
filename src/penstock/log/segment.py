"""One segment: a file of batches and the indexes that find them.

The last segment of a log grows; the others never change. For the batches written last (the *recent* ones) the segment
remembers where each ends and begins, so that readers at the tail, who are nearly all readers, are answered without
touching a file. Every other place is found with the sparse index and a walk over the few headers behind its entry.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from penstock.base.world import File
from penstock.log import names
from penstock.log._append import Recent, SegmentEnd
from penstock.log.config import FOREVER, LogConfig
from penstock.log.file_cache import FileCache
from penstock.log.intervals import Intervals
from penstock.log.scan import HEADERS_CHUNK_BYTES, DamagedLog, walk_headers
from penstock.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, DamagedIndex, SparseIndex
from penstock.log.txn_index import TransactionIndex
from penstock.wire.batch import HEADER_SIZE, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader

RELATIVE_OFFSET_MAX = 2**31 - 1
POSITION_MAX = 2**31 - 1
NOT_KNOWN = 2**63 - 1
REWRITE_BYTES = 1 << 20
PLACES_MAX = 64


def _no_recent(from_offset: int) -> Recent:
    return from_offset, array("q"), array("q")


class Segment(SegmentEnd):
    """The batches from `base_offset` to `next_offset`, and where they are."""

    __slots__ = (
        "_files",
        "_places",
        "_suffix",
        "created_ms",
        "index",
        "indexes_missing",
        "is_replaced",
        "max_timestamp_known",
        "stem",
        "time_index",
        "txn_index",
        "verified_from",
        "verified_parts",
    )

    def __init__(
        self,
        files: FileCache,
        folder: str,
        base_offset: int,
        *,
        created_ms: int,
        fresh: bool,
        has_txn_index: bool = False,
        suffix: str = "",
    ) -> None:
        """`suffix` comes after the names of the files while they are not part of the log yet."""
        super().__init__(base_offset, _no_recent(base_offset if fresh else NOT_KNOWN))
        self._files = files
        self._places: dict[
            int, int
        ] = {}  # where batches begin after which a reader was told to go on: offset → position
        self.stem = stem = f"{folder}/{base_offset:020d}"
        self._suffix = names.LOG + suffix
        self.index = SparseIndex(files, stem, names.INDEX + suffix, OFFSET_ENTRY, fresh=fresh)
        self.time_index = SparseIndex(files, stem, names.TIME_INDEX + suffix, TIME_ENTRY, fresh=fresh)
        self.txn_index = TransactionIndex(files, stem, names.TXN_INDEX + suffix, exists=has_txn_index)
        self.created_ms = created_ms
        self.max_timestamp_known = fresh
        self.verified_from = 0  # written or checked by this process: everything from this position on …
        self.verified_parts = Intervals()  # … and these parts before it
        self.indexes_missing = False
        self.is_replaced = False  # by compaction; whoever holds it may read on, and changes nothing on the disk

    @property
    def log_path(self) -> str:
        return self.stem + self._suffix

    # -- writing

    def open_file(self, *, create: bool = False) -> File:
        """The log file: the one held open, or one from the cache.

        Another thread may pin it while this one looks its name up: then the pinned one counts.
        """
        if self.file is not None:
            return self.file
        try:
            file = self._files.get(self.log_path, create=create)
        except FileNotFoundError:
            if self.file is None:
                raise
            return self.file
        return self.file or file

    def has_room_for(self, size_bytes: int, last_offset: int, segment_bytes_max: int, index_bytes_max: int) -> bool:
        """Whether a batch still fits, by size, by offset and by the size of the indexes; an empty segment takes any."""
        end = self.size_bytes + size_bytes
        if end > segment_bytes_max or end > POSITION_MAX:
            return self.size_bytes == 0
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return False
        if self.size_bytes // 5 < index_bytes_max:  # a batch has 61 bytes or more, an entry at most 12
            return True
        has_room = self.time_index.size_bytes + TIME_ENTRY.size <= index_bytes_max
        return has_room and self.index.size_bytes + OFFSET_ENTRY.size <= index_bytes_max

    def be_sure(self, config: LogConfig, segment_ms: int) -> None:
        """Work out up to where a batch surely goes into this segment, so that most appends need not ask."""
        bytes_per_entry = max(config.index_interval_bytes, HEADER_SIZE)  # at least so much for each entry of an index
        index_entries_max = config.index_size_bytes_max // TIME_ENTRY.size
        self.sure_size = min(config.segment_bytes, POSITION_MAX, index_entries_max * bytes_per_entry)
        self.sure_offset = self.base_offset + RELATIVE_OFFSET_MAX
        self.sure_timestamp = min(self.first_time() + segment_ms, NOT_KNOWN)

    def be_unsure(self) -> None:
        self.sure_size = -1

    def hold_file(self) -> File:
        """Keep the file open for writing."""
        self.file = file = self.open_file(create=True)
        return file

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        self.index.append(last_offset - self.base_offset, position)
        self._add_time_entry()
        self._bytes_since_index = 0

    def _add_time_entry(self) -> None:
        """Time entries grow in both numbers; one that would not grow is left out."""
        if self.max_timestamp_value < 0:
            return
        relative = self.max_timestamp_offset - self.base_offset
        last = self.time_index.last()
        if last is None or (self.max_timestamp_value > last[0] and relative > last[1]):
            self.time_index.append(self.max_timestamp_value, relative)

    def finish(self) -> list[str]:
        """The segment grows no more: its indexes are put into their files. Returns the files that are not synced."""
        self.max_timestamp()
        self._add_time_entry()
        self.index.write_pending()
        self.time_index.write_pending()
        paths = [self.log_path, self.index.path, self.time_index.path]
        if self.txn_index.write_pending():
            paths.append(self.txn_index.path)
        return paths

    def replaced(self) -> None:
        """Another segment takes over the names: keep the files that are there now, for those who still read them."""
        self.is_replaced = True
        self.txn_index.entries()
        self.file = self.open_file()
        self.pin_indexes()

    def pin_indexes(self) -> None:
        for index in (self.index, self.time_index):
            try:
                index.pin()
            except FileNotFoundError:  # who looks for it builds it anew, and does not write it down
                continue

    def unpin(self) -> None:
        """Go by the names that the files of a segment have in a log."""
        self._suffix = names.LOG
        self.txn_index.suffix = names.TXN_INDEX
        self.index.unpin(names.INDEX)
        self.time_index.unpin(names.TIME_INDEX)
        self.let_go()

    def let_go(self) -> None:
        """Nothing is written any more: the file goes back to the cache, the recent batches are forgotten."""
        self.file = None
        self.be_unsure()
        self._forget_recent()

    def _forget_recent(self) -> None:
        self._recent = _no_recent(self.next_offset)

    # -- loading

    def rebuild_reset(self) -> None:
        """Forget everything that is derived from the file, before its batches are noted anew."""
        self.txn_index.clear()
        self.reset_indexes()

    def reset_indexes(self) -> None:
        """The same, but keep the transaction index."""
        self.index.clear()
        self.time_index.clear()
        self.indexes_missing = False
        self.size_bytes = 0
        self.next_offset = self.base_offset
        self.first_timestamp = None
        self.max_timestamp_value = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.max_timestamp_known = True
        self._bytes_since_index = 0
        self._forget_recent()

    def hold_indexes(self, held: bool) -> None:
        """Whether the indexes stay out of their files, which another segment still uses."""
        self.index.is_held = self.time_index.is_held = held

    def take_indexes(self, built: Segment, *, is_growing: bool) -> None:
        """Go on with indexes that were built beside this segment; what it learned since by growing stays."""
        built.hold_indexes(False)
        self.index, self.time_index = built.index, built.time_index
        self.indexes_missing = False
        if not is_growing:
            self.max_timestamp_value, self.max_timestamp_offset = built.max_timestamp_value, built.max_timestamp_offset
            self.max_timestamp_known = True

    def load_tail(self, size_bytes: int) -> None:
        """Find the end of a cleanly closed segment from its last index entry on; DamagedLog if it does not fit."""
        last = self.index.last()
        position = last[1] if last is not None else 0
        next_offset = self.base_offset
        self.size_bytes = size_bytes
        last_time = self.time_index.last()
        max_timestamp, max_timestamp_offset = last_time if last_time is not None else (NO_TIMESTAMP, 0)
        for at, header in self._walk_from(last):
            if header.base_offset < next_offset:
                raise DamagedLog(self.log_path, at, f"base offset {header.base_offset} follows {next_offset - 1}")
            next_offset = header.next_offset
            if header.max_timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = header.max_timestamp, header.last_offset - self.base_offset
        self._bytes_since_index = size_bytes - position
        self.next_offset = next_offset
        self.max_timestamp_value = max_timestamp
        self.max_timestamp_offset = self.base_offset + max_timestamp_offset
        # without time entries (the first may be 0 at offset 0, which looks like none) the walk must have seen it all
        self.max_timestamp_known = last is None or last_time is not None
        self._forget_recent()

    # -- finding

    def is_recent(self, offset: int) -> bool:
        """Whether the place of an offset is known without looking at a file."""
        return offset >= self._recent[0]

    def is_warm(self, offset: int, max_bytes: int) -> bool:
        """Whether the batches from an offset on are found without waiting for the disk."""
        if self.is_recent(offset):
            return True
        file = self.file or self._files.peek(self.log_path)
        if file is None or not self.index.is_warm:
            return False
        start = self._places.get(offset)
        if start is None:
            try:
                entry = self.index.find_by_key(offset - self.base_offset)
            except DamagedIndex:
                return False
            start = entry[1] if entry is not None else 0
        end = min(start + max_bytes, self.size_bytes)
        return file.is_cached(start, HEADERS_CHUNK_BYTES) and file.is_cached(end - 1, 1)

    def locate(self, offset: int) -> int:
        """The position of the first batch that ends at or after an offset; the size of the segment if there is none."""
        from_offset, lasts, positions = self._recent
        if offset >= from_offset:
            at = bisect_left(lasts, offset)
            return positions[at] if at < len(lasts) else self.size_bytes
        known = self._places.get(offset)
        if known is not None:
            return known
        for position, header in self._walk_from(self.index.find_by_key(offset - self.base_offset)):
            if header.last_offset >= offset:
                return position
        return self.size_bytes

    def _walk_from(self, entry: tuple[int, int] | None) -> Iterator[tuple[int, BatchHeader]]:
        """The headers from the batch of an index entry on; DamagedIndex if the entry does not fit the log."""
        if entry is None:
            yield from walk_headers(self.open_file(), 0, self.size_bytes)
            return
        offset, position = entry
        walk = walk_headers(self.open_file(), position, self.size_bytes)
        try:
            first = next(walk, None)
        except DamagedLog as damage:
            raise DamagedIndex(f"{self.index.path} or its log is damaged: {damage}") from damage
        if first is None or first[1].last_offset != self.base_offset + offset:
            raise DamagedIndex(f"{self.index.path} does not fit the log at {position}")
        yield first
        yield from walk

    def boundary_at_or_before(self, position: int) -> int:
        """The largest batch boundary that is not after a position."""
        if position >= self.size_bytes:
            return self.size_bytes
        positions = self._recent[2]
        if positions and position >= positions[0]:
            return positions[bisect_right(positions, position) - 1]
        entry = self.index.find_by_value(position)
        boundary = entry[1] if entry is not None else 0
        for at, header in self._walk_from(entry):
            if at > position:
                break
            boundary, offset = at, header.base_offset
        else:
            return boundary
        if len(self._places) >= PLACES_MAX:
            self._places.clear()
        self._places[offset] = boundary
        return boundary

    def offset_bound(self, position: int) -> int:
        """An offset that no batch before a position reaches: exact at the tail, elsewhere as near as the index is."""
        if position >= self.size_bytes:
            return self.next_offset
        from_offset, lasts, positions = self._recent
        if positions and position >= positions[0]:
            at = bisect_left(positions, position)
            return lasts[at - 1] + 1 if at else from_offset
        entry = self.index.first_from_value(position)
        return self.base_offset + entry[0] if entry is not None else self.next_offset

    def end_of_batch(self, position: int) -> int:
        """Where the batch that begins at a position ends."""
        positions = self._recent[2]
        if positions and position >= positions[0]:
            at = bisect_right(positions, position)
            return positions[at] if at < len(positions) else self.size_bytes
        for at, header in walk_headers(self.open_file(), position, self.size_bytes):
            return at + header.length + LOG_OVERHEAD
        return position

    # -- soundness

    def is_verified(self, start: int, end: int) -> bool:
        """Whether this process has seen that the bytes of a range are sound."""
        return start >= self.verified_from or self.verified_parts.covers(start, min(end, self.verified_from))

    def first_unverified(self) -> int | None:
        """Where the first batch begins that this process has not seen to be sound; None if there is none."""
        start = self.verified_parts.end_of_run(0)
        return start if start < min(self.verified_from, self.size_bytes) else None

    def mark_verified(self, start: int, end: int) -> None:
        self.verified_parts.add(start, min(end, self.verified_from))

    # -- time

    def max_timestamp(self) -> int:
        """The largest timestamp in the segment, -1 if it has none."""
        if not self.max_timestamp_known:
            self._load_max_timestamp()
        return self.max_timestamp_value

    def _load_max_timestamp(self) -> None:
        last = self.time_index.last()
        value, offset = (last[0], self.base_offset + last[1]) if last is not None else (NO_TIMESTAMP, self.base_offset)
        start = self.locate(offset + 1) if last is not None else 0
        for _position, header in walk_headers(self.open_file(), start, self.size_bytes):
            if header.max_timestamp > value:
                value, offset = header.max_timestamp, header.last_offset
        if (value, -offset) > (self.max_timestamp_value, -self.max_timestamp_offset):
            self.max_timestamp_value, self.max_timestamp_offset = value, offset
        self.max_timestamp_known = True

    def first_time(self) -> int:
        """The largest timestamp of the first batch, by which the age is told; far in the future if it has none."""
        if self.first_timestamp is None:
            try:
                first = next(walk_headers(self.open_file(), 0, self.size_bytes), None)
            except DamagedLog:  # whoever reads it will be told
                first = None
            self.first_timestamp = first[1].max_timestamp if first is not None else NO_TIMESTAMP
        return self.first_timestamp if self.first_timestamp >= 0 else NOT_KNOWN

    def open_since_ms(self, config: LogConfig) -> int:
        """Since when it is written to; where that is to end in time, also if it was begun before a restart."""
        if config.max_compaction_lag_ms != FOREVER and 0 < self.first_time() < self.created_ms:
            return self.first_time()
        return self.created_ms

    # -- cutting

    def rewrite_from(self, offset: int) -> None:
        """Write the batches from an offset on once more, as they are. Blocks."""
        file = self.open_file()
        position = self.locate(max(offset, self.base_offset))
        while position < self.size_bytes:
            content = file.read(min(REWRITE_BYTES, self.size_bytes - position), position)
            file.write((content,), position)
            position += len(content)

    def cut(self, position: int) -> None:
        """Drop everything from a batch boundary on, durably, and the index entries that point there."""
        next_offset = self.next_offset_at(position)
        file = self.open_file(create=True)
        file.truncate(position)
        file.sync()
        self.size_bytes = position
        self.next_offset = next_offset
        self._places.clear()
        self.verified_parts.cut(position)
        self.verified_from = min(self.verified_from, position)
        self._forget_recent()
        self._cut_indexes(position, next_offset)

    def next_offset_at(self, position: int) -> int:
        """The offset after the batch that ends at a position."""
        entry = self.index.find_by_value(position - 1)
        next_offset = self.base_offset
        for _at, header in walk_headers(self.open_file(), entry[1] if entry is not None else 0, position):
            next_offset = header.next_offset
        return next_offset

    def _cut_indexes(self, position: int, next_offset: int) -> None:
        relative = next_offset - self.base_offset
        self.index.keep_first(_count_below(self.index, 0, relative))
        self.time_index.keep_first(_count_below(self.time_index, 1, relative))
        self.txn_index.keep_below(next_offset)
        last = self.index.last()
        self._bytes_since_index = position - (last[1] if last is not None else 0)
        if position == 0:
            self.first_timestamp = None
        self.max_timestamp_value = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.max_timestamp_known = position == 0


def _count_below(index: SparseIndex, field: int, relative: int) -> int:
    count = 0
    for entry in index.entries():
        if entry[field] >= relative:
            break
        count += 1
    return count
