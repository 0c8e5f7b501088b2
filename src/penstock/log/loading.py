"""Opening a partition's folder: find the segments, and after an unclean stop check them and rebuild what hangs on them.

After a clean stop the folder is as it was left: only the tail of the last segment is looked at. After any other stop
everything from the segment that holds the recovery point on is suspect. Its batches are walked in order; from the
recovery point on each must have a sound checksum, offsets that go on and a leader epoch that does not go back. At the
first that has not, the log is cut: the rest of that segment and all later segments go. The indexes of the suspect
segments, the state of producers and the list of epochs are built anew on the way. Doing it twice changes nothing.
Only cuts are synced here: whatever else is built anew counts when the next flush has made it durable.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.base.world import Clock, File, write_file_durably
from penstock.log import names
from penstock.log.checkpoints import DamagedCheckpoint, encode_epochs, read_epochs
from penstock.log.compaction_swap import complete_swaps
from penstock.log.config import LogConfig
from penstock.log.epochs import LeaderEpochs
from penstock.log.file_cache import FileCache
from penstock.log.producers import ProducerStates
from penstock.log.removal import remove_if_there, remove_segments
from penstock.log.scan import DamagedLog, walk_batches, walk_headers
from penstock.log.segment import RELATIVE_OFFSET_MAX, Segment
from penstock.log.snapshots import load_latest, remove_snapshots_after, snapshot_offsets, snapshot_path, write_snapshot
from penstock.log.sparse_index import DamagedIndex
from penstock.wire.batch import CONTROL, LOG_OVERHEAD, BatchHeader
from penstock.wire.control import ControlType, read_control_record
from penstock.wire.records import RecordError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did; nothing of it is set after a clean stop."""

    was_clean: bool
    checked_bytes: int = 0
    cut_bytes: int = 0
    cut_at_offset: int | None = None
    cut_below_recovery_point: bool = False
    problem: str | None = None
    removed_segments: list[int] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)


CLEANLY_OPENED = RecoveryReport(was_clean=True)  # what most logs say, and share


@dataclass(slots=True)
class LoadedLog:
    """The parts of a log, ready for use."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    start_offset: int
    recovery_point: int
    cleaned_offset: int
    report: RecoveryReport
    unsynced: list[str]
    has_closed_unsynced: bool
    """Whether there are closed segments among what was recovered"""


class Loader:
    """One opening of one folder."""

    def __init__(
        self,
        files: FileCache,
        clock: Clock,
        folder: str,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        cleaned_offset: int = 0,
    ) -> None:
        self._files = files
        self._disk = files.disk
        self._now_ms = clock.wall_ms()
        self._folder = folder
        self._config = config
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._cleaned_offset = cleaned_offset
        self._report = RecoveryReport(was_clean=clean)
        self._segments: list[Segment] = []
        self._snapshots: list[int] = []
        self._epochs = LeaderEpochs()
        self._producers = ProducerStates()
        self._unsynced: list[str] = []
        self._has_closed_unsynced = False

    def load(self) -> LoadedLog:
        """Open, recover where needed, and return the parts."""
        complete_swaps(self._files, self._folder)
        present = self._remove_leftovers(self._disk.list_dir(self._folder))
        self._find_segments(present)
        suspects_from = self._load_clean_tail() if self._report.was_clean else self._first_suspect()
        if suspects_from < len(self._segments):
            self._report.was_clean = False
            self._recover(suspects_from)
        else:
            self._load_state_of_clean_log()
        self._start_at_log_start_offset()
        end_offset = self._segments[-1].next_offset
        start_offset = max(self._log_start_offset, self._segments[0].base_offset)
        self._epochs.truncate_from_start(start_offset)
        self._epochs.truncate_from_end(end_offset)
        self._producers.end_offset = end_offset
        self._forget_silent_producers()
        recovery_point = end_offset if self._report.was_clean else min(self._recovery_point, end_offset)
        return LoadedLog(
            segments=self._segments,
            epochs=self._epochs,
            producers=self._producers,
            start_offset=start_offset,
            recovery_point=recovery_point,
            cleaned_offset=min(self._cleaned_offset, end_offset),
            report=CLEANLY_OPENED if self._report == CLEANLY_OPENED else self._report,
            unsynced=self._unsynced,
            has_closed_unsynced=self._has_closed_unsynced,
        )

    # -- the files

    def _remove_leftovers(self, present: list[str]) -> list[str]:
        """Remove what an interrupted delete or write left."""
        kept = []
        for name in present:
            if name.endswith((names.DELETED, names.TEMPORARY)):
                self._disk.remove(f"{self._folder}/{name}")
            else:
                kept.append(name)
        return kept

    def _find_segments(self, present: list[str]) -> None:
        there = set(present)
        bases = [base for name in present if (base := names.offset_of(name, names.LOG)) is not None]
        for name in present:
            suffix = "." + name.rpartition(".")[2]
            if suffix in names.INDEX_SUFFIXES:
                base = names.offset_of(name, suffix)
                if base is not None and names.offset_name(base) + names.LOG not in there:
                    remove_if_there(self._disk, f"{self._folder}/{name}")
        self._snapshots = snapshot_offsets(present)
        for base in sorted(bases):
            self._segments.append(self._open_segment(base, there))
        for segment, following in zip(self._segments, self._segments[1:], strict=False):
            segment.next_offset = following.base_offset
        if not self._segments:
            base = max(0, self._log_start_offset)
            self._segments.append(Segment(self._files, self._folder, base, created_ms=self._now_ms, fresh=True))

    def _open_segment(self, base: int, there: set[str]) -> Segment:
        stem = names.offset_name(base)
        segment = Segment(
            self._files,
            self._folder,
            base,
            created_ms=self._now_ms,
            fresh=False,
            has_txn_index=stem + names.TXN_INDEX in there,
        )
        segment.size_bytes = self._disk.file_size(segment.log_path)
        segment.verified_from = segment.size_bytes
        if stem + names.INDEX not in there or stem + names.TIME_INDEX not in there:
            segment.indexes_missing = True
        return segment

    # -- after a clean stop

    def _load_clean_tail(self) -> int:
        """Find the end of the last segment; returns the first segment that must be recovered after all, if any."""
        last = self._segments[-1]
        if last.size_bytes == 0:
            last.rebuild_reset()
            return len(self._segments)
        try:
            last.load_tail(last.size_bytes)
        except DamagedIndex as problem:
            return self._reload_with_new_index(last, problem)
        except DamagedLog as problem:
            logger.error("%s was closed cleanly and is damaged: %s", last.log_path, problem.problem)
            return len(self._segments) - 1
        return len(self._segments)

    def _reload_with_new_index(self, last: Segment, problem: DamagedIndex) -> int:
        logger.warning("%s; building the indexes of %s anew", problem, last.log_path)
        self._report.rebuilt.append(last.index.path)
        try:
            rebuild_indexes(last, self._config.index_interval_bytes)
        except DamagedLog as damage:
            logger.error("%s was closed cleanly and is damaged: %s", last.log_path, damage.problem)
            return len(self._segments) - 1
        return len(self._segments)

    def _load_state_of_clean_log(self) -> None:
        end_offset = self._segments[-1].next_offset
        self._rebuild_missing_indexes(len(self._segments))
        self._load_epochs(len(self._segments))
        self._load_producers(end_offset)
        for offset in self._snapshots:
            if offset > end_offset:
                remove_if_there(self._disk, snapshot_path(self._folder, offset))

    # -- after an unclean stop

    def _first_suspect(self) -> int:
        """The segment that holds the last durable offset. If it was closed since, its indexes may not be durable."""
        at = 0
        for index, segment in enumerate(self._segments):
            if segment.base_offset < self._recovery_point:
                at = index
        return at

    def _recover(self, first: int) -> None:
        base_offset = self._segments[first].base_offset
        for offset in self._snapshots:
            if offset > base_offset:
                remove_if_there(self._disk, snapshot_path(self._folder, offset))
            else:
                self._unsynced.append(snapshot_path(self._folder, offset))
        self._rebuild_missing_indexes(first)
        self._load_epochs(first)
        self._load_producers(base_offset)
        for index in range(first, len(self._segments)):
            if index > first and not self._goes_on(index):
                break
            if not self._recover_segment(self._segments[index], is_first=index == first):
                index += 1
                break
        else:
            index = len(self._segments)
        self._drop_segments(index)
        self._finish_recovered(first)

    def _goes_on(self, index: int) -> bool:
        """Whether a segment begins where the one before it ended; a hole is fine only where everything was synced,
        or compacted.
        """
        end_offset, base_offset = self._segments[index - 1].next_offset, self._segments[index].base_offset
        whole_to = max(self._recovery_point, self._cleaned_offset)
        if base_offset == end_offset or end_offset < base_offset <= whole_to:
            return True
        self._note_cut(end_offset, f"the next segment begins at {base_offset}")
        return False

    def _recover_segment(self, segment: Segment, *, is_first: bool) -> bool:
        """Walk one segment and build its indexes; cut it where it is damaged. Whether it was whole."""
        size_bytes = segment.size_bytes
        if not is_first:
            path = write_snapshot(self._disk, self._folder, segment.base_offset, self._producers)
            self._unsynced.append(path)
        segment.rebuild_reset()
        segment.verified_from = size_bytes
        try:
            self._walk_segment(segment, size_bytes)
        except DamagedLog as damage:
            self._report.cut_bytes += size_bytes - damage.position
            if segment.next_offset < self._recovery_point:
                self._report.cut_below_recovery_point = True
            self._note_cut(segment.next_offset, f"{damage.path} at {damage.position}: {damage.problem}")
            file = segment.open_file()
            file.truncate(damage.position)
            file.sync()
            return False
        return True

    def _walk_segment(self, segment: Segment, size_bytes: int) -> None:
        if size_bytes == 0:  # its file may not even exist
            return
        file = segment.open_file()
        position = 0
        for position, header in walk_headers(file, 0, size_bytes):
            if header.last_offset >= self._recovery_point:
                break
            batch = _control_batch(segment, position, header)
            self._take(segment, position, header, batch)
        else:
            position = segment.size_bytes
        segment.verified_from = position
        self._report.checked_bytes += size_bytes - position
        for at, checked_header, checked_batch in walk_batches(file, position, size_bytes):
            self._take(segment, at, checked_header, checked_batch)

    def _take(self, segment: Segment, position: int, header: BatchHeader, batch: memoryview | None) -> None:
        """One more batch of a suspect segment."""
        problem = self._order_problem(segment, header)
        if problem is not None:
            raise DamagedLog(segment.log_path, position, problem)
        self._epochs.assign(header.leader_epoch, header.base_offset)
        note_producer(self._producers, segment, header, batch)
        size_bytes = header.length + LOG_OVERHEAD
        segment.note_batch(header.last_offset, header.max_timestamp, size_bytes, self._config.index_interval_bytes)

    def _order_problem(self, segment: Segment, header: BatchHeader) -> str | None:
        if header.base_offset < segment.next_offset:
            return f"base offset {header.base_offset} where {segment.next_offset} or more must follow"
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return f"offset {header.last_offset} is too far from the segment's base"
        if 0 <= header.leader_epoch < self._epochs.latest:
            return f"leader epoch {header.leader_epoch} after {self._epochs.latest}"
        return None

    def _note_cut(self, offset: int, problem: str) -> None:
        if self._report.problem is None:
            self._report.cut_at_offset = offset
            self._report.problem = problem

    def _drop_segments(self, from_index: int) -> None:
        """The log ends before this segment: it and all later ones go, the last one first."""
        dropped = self._segments[from_index:]
        if not dropped:
            return
        del self._segments[from_index:]
        self._report.cut_bytes += sum(segment.size_bytes for segment in dropped)
        self._report.removed_segments += [segment.base_offset for segment in dropped]
        remove_segments(self._files, self._folder, [segment.base_offset for segment in reversed(dropped)])

    def _finish_recovered(self, first: int) -> None:
        for segment in self._segments[first:-1]:
            self._unsynced += segment.finish()
            self._has_closed_unsynced = True
            segment.let_go()
        if self._report.problem is not None:
            logger.warning(
                "%s: cut %d bytes at offset %s (%s); segments removed: %s",
                self._folder,
                self._report.cut_bytes,
                self._report.cut_at_offset,
                self._report.problem,
                self._report.removed_segments or "none",
            )

    def _start_at_log_start_offset(self) -> None:
        """Records below the log start are deleted for good: a log that ends before it begins anew there."""
        if self._segments[-1].next_offset >= self._log_start_offset:
            return
        logger.warning("%s ends before its log start offset %d", self._folder, self._log_start_offset)
        end_offset = self._segments[-1].next_offset
        remove_snapshots_after(self._disk, self._folder, -1)
        self._drop_segments(0)
        self._note_cut(end_offset, f"the log start offset is {self._log_start_offset}")
        base = self._log_start_offset
        segment = Segment(self._files, self._folder, base, created_ms=self._now_ms, fresh=True)
        segment.hold_file()
        write_file_durably(self._disk, f"{self._folder}/{names.EPOCHS_FILE}", encode_epochs([]))
        self._segments = [segment]
        self._epochs.clear()
        self._producers.replace([], base)

    # -- what hangs on the segments

    def _rebuild_missing_indexes(self, before: int) -> None:
        for segment in self._segments[:before]:
            if segment.indexes_missing and segment.size_bytes:
                logger.warning("the indexes of %s are missing and are built anew", segment.log_path)
                self._report.rebuilt.append(segment.index.path)
                next_offset = segment.next_offset
                try:
                    rebuild_indexes(segment, self._config.index_interval_bytes)
                except DamagedLog as damage:
                    logger.error("%s is damaged at %d: %s", damage.path, damage.position, damage.problem)
                segment.next_offset = next_offset
                self._rebuild_txn_index(segment)
                self._unsynced += segment.finish()

    def _rebuild_txn_index(self, segment: Segment) -> None:
        """The aborted transactions of a segment: what took its other indexes away may have taken these too."""
        producers = ProducerStates()
        if not load_latest(self._disk, self._folder, self._snapshots, segment.base_offset, producers):
            producers.replace([], self._segments[0].base_offset)
        replay(producers, self._segments, segment.base_offset)
        segment.txn_index.clear()
        for position, header in _sound_headers(segment):
            note_producer(producers, segment, header, _control_batch(segment, position, header))

    def _load_epochs(self, before: int) -> None:
        """The epochs of the segments before an index: from the file, or from the log if the file cannot be used."""
        path = f"{self._folder}/{names.EPOCHS_FILE}"
        try:
            entries = read_epochs(self._disk, path)
        except DamagedCheckpoint as problem:
            logger.warning("%s; building it anew", problem)
            entries = None
        trusted = self._segments[:before]
        end_offset = trusted[-1].next_offset if trusted else self._segments[0].base_offset
        entries = [entry for entry in entries or [] if entry[1] < end_offset]
        self._find_first_epochs(path, trusted, entries[0][1] if entries else end_offset)
        for epoch, start_offset in entries:
            self._epochs.assign(epoch, start_offset)

    def _find_first_epochs(self, path: str, trusted: list[Segment], known_from: int) -> None:
        """What the file does not say of the beginning of the log is read from the headers there."""
        start_offset = max(self._log_start_offset, self._segments[0].base_offset)
        if known_from <= start_offset or not any(segment.size_bytes for segment in trusted):
            return
        logger.warning("%s does not reach back to offset %d and is completed", path, start_offset)
        self._report.rebuilt.append(path)
        for segment in trusted:
            for _position, header in _sound_headers(segment):
                if header.base_offset >= known_from:
                    return
                if header.last_offset >= start_offset:
                    self._epochs.assign(header.leader_epoch, header.base_offset)

    def _forget_silent_producers(self) -> None:
        """Those that wrote nothing since a segment that has not been written to for long."""
        long_ago_ms = self._now_ms - self._config.producer_id_expiration_ms
        for segment in reversed(self._segments) if len(self._producers) else ():
            if segment.size_bytes and self._disk.modified_ms(segment.log_path) <= long_ago_ms:
                self._producers.forget_before(segment.next_offset)
                return

    def _load_producers(self, up_to: int) -> None:
        """The state of producers at an offset: from the newest snapshot, and from the batches after it."""
        if not load_latest(self._disk, self._folder, self._snapshots, up_to, self._producers):
            self._producers.replace([], self._segments[0].base_offset)
        replay(self._producers, self._segments, up_to)


def replay(producers: ProducerStates, segments: list[Segment], up_to: int) -> None:
    """Bring the state of producers from where it stands to an offset, by the headers of the batches in between."""
    for segment in segments:
        if segment.next_offset <= producers.end_offset or segment.base_offset >= up_to or not segment.size_bytes:
            continue
        for position, header in _sound_headers(segment, _position_of(segment, producers.end_offset)):
            if header.base_offset >= up_to:
                break
            if header.base_offset >= producers.end_offset:
                note_producer(producers, None, header, _control_batch(segment, position, header))
    producers.end_offset = up_to


def _position_of(segment: Segment, offset: int) -> int:
    """A position that is not after an offset's batch: the beginning where the index does not help."""
    try:
        return segment.locate(offset) if offset > segment.base_offset else 0
    except (DamagedIndex, DamagedLog):
        return 0


def rebuild_indexes(segment: Segment, interval_bytes: int) -> None:
    """Build the indexes of a segment anew from its headers. The transaction index is left as it is."""
    size_bytes = segment.size_bytes
    segment.reset_indexes()
    try:
        note_headers(segment, segment.open_file(), size_bytes, interval_bytes)
    finally:
        segment.size_bytes = size_bytes


def rebuild_beside(files: FileCache, folder: str, segment: Segment, interval_bytes: int, *, is_growing: bool) -> None:
    """The same while the segment is in use: it goes on with the new indexes once they are built."""
    built = Segment(files, folder, segment.base_offset, created_ms=segment.created_ms, fresh=True)
    built.hold_indexes(True)
    try:
        note_headers(built, segment.open_file(), segment.size_bytes, interval_bytes)
    finally:
        segment.take_indexes(built, is_growing=is_growing)


def note_headers(segment: Segment, file: File, size_bytes: int, interval_bytes: int) -> None:
    """Let a segment take note of all batches in a file; DamagedLog where there is none."""
    for _position, header in walk_headers(file, 0, size_bytes):
        segment.note_batch(header.last_offset, header.max_timestamp, header.length + LOG_OVERHEAD, interval_bytes)


def note_producer(
    producers: ProducerStates, segment: Segment | None, header: BatchHeader, batch: memoryview | None
) -> None:
    """Account for the producer of a batch that is in the log; aborts go into the segment's index if one is given."""
    if header.producer_id < 0:
        return
    if not header.attributes & CONTROL:
        producers.note(header, header.base_offset)
        return
    if batch is None or header.record_count == 0:  # compaction leaves empty ones
        return
    try:
        control = read_control_record(batch)
    except RecordError as problem:
        logger.error("the control batch at offset %d is passed over: %s", header.base_offset, problem)
        return
    if control.type is not ControlType.UNKNOWN:
        aborted = producers.note_marker(header, control.type, control.coordinator_epoch, header.base_offset)
        if aborted is not None and segment is not None:
            segment.txn_index.append(aborted)


def _control_batch(segment: Segment, position: int, header: BatchHeader) -> memoryview | None:
    if not header.attributes & CONTROL:
        return None
    return memoryview(segment.open_file().read(header.length + LOG_OVERHEAD, position))


def _sound_headers(segment: Segment, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """The headers of a segment that is not checked now; a damaged one is the end."""
    try:
        yield from walk_headers(segment.open_file(), start, segment.size_bytes)
    except DamagedLog as damage:
        logger.error("%s is damaged at %d: %s", damage.path, damage.position, damage.problem)
