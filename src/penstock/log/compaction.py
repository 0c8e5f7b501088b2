"""Compacting one log: read the dirty part for the last offset of every key, then write everything before its end anew.

A `Compaction` is one round. It works in steps (`step`), each of a bounded size, which run beside the loop; between two
steps the caller may wait, or give up. The segments are written anew in groups. When one is ready, `exchange` holds it,
and the next step must not begin before it is done: `adopt` on the loop, then `run` beside it, while nothing else
changes the files of the log (appends may go on).

The map of keys has a fixed size. If it is full before the dirty part ends, this round covers what it has seen, and the
next one goes on there (`cleaned_offset`). What is beyond is copied as it is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass

from penstock.base.world import Buffer, File, lacks_space
from penstock.log import names
from penstock.log.compaction_filter import BatchFilter, Inside, LastOfProducer, RemovedRecords
from penstock.log.compaction_plan import CompactionPlan, grouped, in_reach
from penstock.log.compaction_swap import announce, discard_cleaned, put_in_place
from penstock.log.compaction_transactions import CleanedTransactions
from penstock.log.partition_log import PartitionLog
from penstock.log.scan import BATCHES_CHUNK_BYTES, walk_batches
from penstock.log.segment import POSITION_MAX, Segment
from penstock.wire._keys import ENTRY_BYTES, KeyMap
from penstock.wire.batch import BatchHeader
from penstock.wire.records import RecordError

SLOTS_MIN = 16
ALONE_BYTES = 64 * 1024


class CompactionError(Exception):
    """The log cannot be compacted as it is."""


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """How much memory the map of keys may take, how full it may get, and the seed of its hash."""

    map_bytes: int
    load_factor: float
    seed: bytes  # sixteen random bytes


def last_of_producers(log: PartitionLog) -> dict[int, LastOfProducer]:
    """By which batch each producer is remembered; on the loop."""
    return {state.producer_id: LastOfProducer(state.last_offset, state.epoch) for state in log.producers}


class Compaction:
    """One round over one log."""

    def __init__(self, log: PartitionLog, plan: CompactionPlan, limits: CompactionLimits, now_ms: int) -> None:
        """On the loop. Until it is over, nobody else compacts this log."""
        self.exchange: Exchange | None = None
        self.cleaned_offset = plan.first_dirty_offset
        self.is_done = False
        self.read_bytes = 0
        self.written_bytes = 0
        self.removed_bytes = 0
        self.removed = RemovedRecords()
        self.first_offset = plan.segments[0].base_offset if plan.segments else plan.first_dirty_offset
        self._log = log
        self._plan = plan
        self._cuts = log.cuts
        self._keys = _key_map(plan, limits)
        self._producers: Mapping[int, LastOfProducer] = last_of_producers(log)
        self._now_ms = now_ms
        self._writing: SegmentWriter | None = None
        self._work = self._run()

    def step(self, size_bytes: int) -> int:
        """Do about so much more; how many bytes were read and written. Blocks.

        DamagedLog or CompactionError if the log cannot be compacted, OSError if the disk fails.
        """
        assert self.exchange is None, "a segment waits to be exchanged"
        before = self.read_bytes + self.written_bytes
        while self.exchange is None and self.read_bytes + self.written_bytes - before < size_bytes:
            if next(self._work, None) is None:
                self.is_done = True
                break
        return self.read_bytes + self.written_bytes - before

    @property
    def is_overtaken(self) -> bool:
        """Whether the log has lost segments of this round meanwhile, to retention or a cut: that a step does not find
        one, or finds half of it, is no fault of the disk then. On the loop."""
        return self._log.cuts != self._cuts or self._log.segments[0].base_offset > self.first_offset

    def exchanged(self) -> None:
        """The segment that was ready is in its place, and the round may go on."""
        assert self.exchange is not None
        self.removed_bytes += self.exchange.removed_bytes
        self.exchange = None

    def abandon(self) -> None:
        """Give the round up; what has been exchanged stays so. Blocks."""
        self._work.close()
        if self._writing is not None:
            self._writing.discard()
            self._writing = None

    # -- the two parts of the work; they yield after every batch

    def _run(self) -> Generator[bool, None, None]:
        yield from self._read_keys()
        latest_offset = self._keys.latest_offset
        if latest_offset < self._plan.first_dirty_offset:
            return
        log, plan = self._log, self._plan
        segments = [segment for segment in plan.segments if segment.base_offset <= latest_offset]
        aborted = log.aborted_transactions(segments[0].base_offset, plan.end_offset) or []
        filter_ = BatchFilter(
            keys=self._keys,
            transactions=CleanedTransactions(aborted),
            producers=self._producers,
            end_offset=plan.end_offset,
            now_ms=self._now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            removed=self.removed,
        )
        groups = grouped(segments, log.config)
        del segments
        plan.segments.clear()  # a segment that was exchanged is to be let go of at once, and its disk space with it
        while groups:
            group = groups.pop(0)
            self._writing = writer = SegmentWriter(log, group)
            yield from self._write_group(writer, group, filter_)
            while not writer.segment.size_bytes and groups and in_reach([group[0], groups[0][-1]]):
                group = writer.old = [*group, *groups[0]]  # an empty segment is no use: the next ones go into it
                yield from self._write_group(writer, groups.pop(0), filter_)
            if writer.is_changed or len(group) > 1:
                self.exchange = writer.finished(filter_.transactions, self._cuts)
                self._writing = None
                yield True
            else:
                writer.discard()
                filter_.transactions.kept.clear()
        self._writing = None
        self.cleaned_offset = latest_offset + 1

    def _read_keys(self) -> Iterator[bool]:
        plan, keys = self._plan, self._keys
        aborted = self._log.aborted_transactions(plan.first_dirty_offset, plan.end_offset) or []
        transactions = CleanedTransactions(aborted)
        inside = Inside()
        for segment in plan.segments:
            if segment.next_offset <= plan.first_dirty_offset:
                continue
            for header, batch in self._batches(segment, 0):
                if header.last_offset >= plan.first_dirty_offset and not (
                    header.is_control or transactions.is_aborted(header)
                ):
                    if not self._put(inside, header, batch):
                        return
                    yield True
                keys.latest_offset = max(keys.latest_offset, header.last_offset)
            keys.latest_offset = max(keys.latest_offset, segment.next_offset - 1)

    def _put(self, inside: Inside, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the keys of a batch all had room; if not, the round covers what is before the first that had none."""
        if not header.record_count:
            return True
        try:
            inside.read(header, batch)
        except RecordError:
            return True
        columns = inside.columns
        from_offset = self._plan.first_dirty_offset
        count = self._keys.put(
            inside.area,
            inside.count,
            columns.key_start,
            columns.key_length,
            columns.offset_delta,
            header.base_offset,
            from_offset,
        )
        if count == inside.count:
            return True
        self._keys.latest_offset = header.base_offset + columns.offset_delta[count] - 1
        return False

    def _write_group(self, writer: SegmentWriter, segments: list[Segment], filter_: BatchFilter) -> Iterator[bool]:
        for segment in segments:
            for header, batch in self._batches(segment, 0):
                kept = filter_.apply(header, batch)
                if kept is None or kept[1] is not batch:
                    writer.is_changed = True
                if kept is not None:
                    self.written_bytes += len(kept[1])
                    writer.add(header.last_offset, *kept)
                yield True
        writer.write()

    def _batches(self, segment: Segment, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        if not segment.size_bytes:
            return
        for _position, header, batch in walk_batches(segment.open_file(), position, segment.size_bytes):
            self.read_bytes += len(batch)
            yield header, batch


def _key_map(plan: CompactionPlan, limits: CompactionLimits) -> KeyMap:
    """No larger than the dirty part needs, as there cannot be more keys than offsets."""
    wanted = int((plan.end_offset - plan.first_dirty_offset) / limits.load_factor) + 2
    slots = max(SLOTS_MIN, min(limits.map_bytes // ENTRY_BYTES, wanted))
    entries_max = min(slots - 1, max(1, int(slots * limits.load_factor)))
    low, high = limits.seed[:8], limits.seed[8:16]
    return KeyMap(slots, entries_max, int.from_bytes(low, "big"), int.from_bytes(high, "big"))


class SegmentWriter:
    """Writes the segment that takes the place of some others, into files that count for nothing yet."""

    __slots__ = ("_buffered_bytes", "_buffers", "_file", "_log", "_written_bytes", "is_changed", "old", "segment")

    def __init__(self, log: PartitionLog, old: list[Segment]) -> None:
        first = old[0]
        self.old = old
        self.is_changed = False
        self._log = log
        self._buffers: list[Buffer] = []
        self._buffered_bytes = 0
        self._written_bytes = 0
        discard_cleaned(log.files, first.stem)
        self.segment = Segment(
            log.files, log.folder, first.base_offset, created_ms=first.created_ms, fresh=True, suffix=names.CLEANED
        )
        self.segment.hold_indexes(True)
        self._file: File = self.segment.hold_file()

    def add(self, last_offset: int, max_timestamp: int, batch: Buffer) -> None:
        segment = self.segment
        if segment.size_bytes + len(batch) > POSITION_MAX:
            raise CompactionError(f"{segment.log_path} would be too large")
        segment.note_batch(last_offset, max_timestamp, len(batch), self._log.config.index_interval_bytes)
        if len(batch) >= ALONE_BYTES:  # to be joined with others would be one more copy
            self.write()
        self._buffers.append(batch)
        self._buffered_bytes += len(batch)
        if self._buffered_bytes >= BATCHES_CHUNK_BYTES or len(batch) >= ALONE_BYTES:
            self.write()

    def write(self) -> None:
        if self._buffers:
            self._file.write(self._buffers, self._written_bytes)
            self._written_bytes += self._buffered_bytes
            self._buffers, self._buffered_bytes = [], 0

    def finished(self, transactions: CleanedTransactions, cuts: int) -> Exchange:
        """Everything is written and synced; what is left is the exchange. Blocks."""
        segment, files = self.segment, self._log.files
        segment.hold_indexes(False)
        for entry in transactions.kept:
            segment.txn_index.append(entry)
        transactions.kept.clear()
        if any(files.disk.exists(old.stem + names.TXN_INDEX) for old in self.old):
            files.get(segment.txn_index.path, create=True).sync()  # if empty, so that the old one's entries go
        modified_ms = files.disk.modified_ms(self.old[-1].log_path)
        for path in segment.finish():
            files.get(path).sync()
        files.disk.set_modified_ms(segment.log_path, modified_ms)  # its age is that of the records
        segment.pin_indexes()
        segment.next_offset = self.old[-1].next_offset  # its last records may be gone
        return Exchange(self._log, self.old, segment, cuts)

    def discard(self) -> None:
        """Blocks; the folder may be gone."""
        self.segment.let_go()
        discard_cleaned(self._log.files, self.segment.stem)


class Exchange:
    """A segment that is ready to take the place of others."""

    __slots__ = ("_cuts", "_log", "_new", "_old", "removed_bytes", "was_undone")

    def __init__(self, log: PartitionLog, old: list[Segment], new: Segment, cuts: int) -> None:
        self._log = log
        self._old = old
        self._new = new
        self._cuts = cuts
        self.removed_bytes = sum(segment.size_bytes for segment in old) - new.size_bytes
        self.was_undone = False

    def adopt(self) -> bool:
        """On the loop, right before `run`: readers find the new segment from here on. False if the log has changed so
        that it cannot be done any more; `discard` then.
        """
        log = self._log
        if log.cuts != self._cuts or log.failure is not None or not log.replace_segments(self._old, [self._new]):
            return False
        log.removed_bytes["compaction"] += self.removed_bytes
        return True

    def run(self) -> None:
        """Put the files in their place. Blocks. What fails half way is left for the next start, and the log is done
        for; but for a lack of room before the new segment counts: that is undone (`was_undone`, and then `give_back`).
        """
        log, new = self._log, self._new
        with log.exchanging:
            for segment in self._old:
                segment.replaced()
            try:
                log.note_recovery_point()  # recovery takes holes only below it
                announce(log.files, log.folder, new.stem)
            except OSError as error:
                if not lacks_space(error):
                    raise
                self.discard()
                self.was_undone = True
                return
            put_in_place(log.files, log.folder, new.stem, [segment.base_offset for segment in self._old[1:]])
            new.unpin()
            del segment
            self._old.clear()  # to close a large file that is gone takes a while: here, and not on the loop

    def give_back(self) -> None:
        """On the loop, right after an exchange that was undone: the log is what it was."""
        self._log.replace_segments([self._new], self._old)
        self._log.removed_bytes["compaction"] -= self.removed_bytes
        for segment in self._old:
            segment.is_replaced = False
            segment.unpin()

    def discard(self) -> None:
        """Give the new segment up. Blocks."""
        discard_cleaned(self._log.files, self._new.stem)
