"""One partition's log on one disk: append at the end, read anywhere, forget at the beginning, cut at the end.

The log is a row of segments; only the last one grows. Offsets from `start_offset` to `end_offset` can be read; those
below `recovery_point` are durable. All calls are made by the event loop, one at a time, except where a method says
that it blocks or that it may run in another thread. What an append changes in memory it changes after the write, so
that a write that fails changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter
from threading import Lock
from uuid import UUID
from zlib import crc32

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.world import Clock, Disk, NoSpaceError, lacks_space
from penstock.log import names
from penstock.log._append import NO_TIME, LogEnd, SegmentEnd
from penstock.log._append import Appended as Appended
from penstock.log.append_checks import check_followed
from penstock.log.config import LogConfig
from penstock.log.file_cache import FileCache
from penstock.log.flush import FlushPlan, Unsynced, parent_of
from penstock.log.loading import LoadedLog, Loader, note_producer, rebuild_beside, replay
from penstock.log.partition_metadata import claim_folder
from penstock.log.producers import ProducerStates
from penstock.log.ranges import NOTHING, LogRange, read_segment, read_segments, search_segments
from penstock.log.removal import remove_segments
from penstock.log.retention import DeletedSegment, segments_to_delete
from penstock.log.segment import Segment
from penstock.log.snapshots import load_latest, remove_snapshots_after, write_snapshot
from penstock.log.timestamps import FoundByTime, first_record_since, newest_record
from penstock.log.txn_index import AbortedTransaction, aborted_between
from penstock.wire.batch import read_header
from penstock.wire.control import ControlType, build_control_batch

FAILED_WRITES_MAX = 5
_BASE_OFFSET = attrgetter("base_offset")


class PartitionLog(LogEnd):
    """The log of one partition."""

    __slots__ = (
        "_clock",
        "_disk",
        "_failed_writes",
        "_failure",
        "_flushed_ms",
        "_generation",
        "_jitter_ms",
        "_lower_recovery_point",
        "_segments",
        "_unsynced",
        "cleaned_offset",
        "exchanging",
        "fetched_bytes",
        "files",
        "folder",
        "recovery",
        "recovery_point",
        "removed_bytes",
        "replicated_bytes",
        "start_offset",
        "topic_id",
        "topic_partition",
    )

    _active: Segment
    producers: ProducerStates

    def __init__(
        self,
        files: FileCache,
        folder: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        topic_id: UUID,
        clock: Clock,
        loaded: LoadedLog,
        lower_recovery_point: Callable[[], None] | None,
    ) -> None:
        self.files = files
        self._disk = files.disk
        self.folder = folder
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._lower_recovery_point = lower_recovery_point
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.recovery = loaded.report
        self.start_offset = loaded.start_offset
        self.recovery_point = loaded.recovery_point
        self.appended_bytes = self.appended_records = 0  # as a leader, since it was opened
        self.replicated_bytes = 0  # as a follower
        self.fetched_bytes = 0  # given to consumers
        self.removed_bytes: Counter[str] = Counter()  # by the reason
        self.cleaned_offset = loaded.cleaned_offset  # compaction has looked at what is below
        self.exchanging = Lock()  # held while the files of segments are exchanged
        self._set_segments(loaded.segments)
        self.use_config(config)
        self._failure: str | None = None
        self._failed_writes = (-1, 0)  # where, and how often one after the other
        self._generation = 0  # counts the cuts: what was begun before one does not count after it
        self._clock = clock
        self._flushed_ms = clock.wall_ms()
        is_clean, has_closed = loaded.report.was_clean, loaded.has_closed_unsynced
        self._unsynced = Unsynced(loaded.unsynced, is_clean=is_clean, has_closed_segments=has_closed)

    @classmethod
    def open(
        cls,
        disk: Disk,
        clock: Clock,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: UUID,
        clean_shutdown: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_offset: int = 0,
        files: FileCache | None = None,
        lower_recovery_point: Callable[[], None] | None = None,
        folder_name: str | None = None,
    ) -> PartitionLog:
        """Open the partition's folder in a log directory, or make it. After an unclean stop this blocks for a while.

        `lower_recovery_point` is called before the log is cut below its recovery point or its start: it must make
        durable what `recovery_point` and `start_offset` are then.
        """
        folder = f"{directory}/{folder_name or topic_partition}"
        files = FileCache(disk) if files is None else files
        is_new = claim_folder(disk, folder, topic_id)
        loaded = Loader(
            files,
            clock,
            folder,
            config,
            clean=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            cleaned_offset=cleaned_offset,
        ).load()
        log = cls(files, folder, topic_partition, config, topic_id, clock, loaded, lower_recovery_point)
        if is_new or not loaded.report.was_clean:
            log._unsynced.add(f"{folder}/{names.PARTITION_METADATA_FILE}")
        if is_new:
            log._unsynced.folder_made()
        return log

    def use_config(self, config: LogConfig) -> None:
        """Go on with other settings."""
        self._active.be_unsure()
        self.config = config
        self._create_time = config.message_timestamp_type == "CreateTime"
        self._jitter_ms = crc32(self.folder.encode()) % max(1, config.segment_jitter_ms)

    def _set_segments(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._active = segments[-1]
        self.end_offset = self._active.next_offset
        self.size_bytes = sum(segment.size_bytes for segment in segments)

    # -- appending; what a client sends goes through the upper half, `append_as_leader`

    def append_marker(
        self,
        kind: ControlType,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """Append the marker that ends a transaction."""
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        encoded = build_control_batch(
            kind,
            timestamp=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )
        return self.append_own(memoryview(bytearray(encoded)), leader_epoch, now_ms)

    def append_own(self, batch: memoryview, leader_epoch: int, now_ms: int) -> Appended:
        """Append a batch that this broker made itself: records of an internal topic, or a marker."""
        base_offset = self._append(batch, read_header(batch), leader_epoch, now_ms)
        note_producer(self.producers, self._active, read_header(batch), batch)  # the header has its offset now
        return Appended(base_offset, self.end_offset - 1, NO_TIME, False)

    def append_as_follower(self, batches: memoryview) -> int:
        """Append whole batches as the leader sent them, offsets included; returns the new end offset.

        Every batch is checked first; nothing is written if one is bad or out of order.
        """
        checked = check_followed(batches, self.end_offset)
        for header, batch in checked:
            now_ms = header.max_timestamp
            active = self._active_for(len(batch), header.last_offset, header.max_timestamp, now_ms)
            self._write(active, batch)
            self.epochs.assign(header.leader_epoch, header.base_offset)
            active.note_batch(header.last_offset, header.max_timestamp, len(batch), self.config.index_interval_bytes)
            self.end_offset = header.last_offset + 1
            self.size_bytes += len(batch)
            self.replicated_bytes += len(batch)
            note_producer(self.producers, active, header, batch)
        return self.end_offset

    def _active_for(self, size_bytes: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """The segment that takes the next batch, rolled if that is due, with its file open."""
        if self._failure is not None:
            raise ApiError(Error.KAFKA_STORAGE_ERROR, self._failure)
        active = self._active
        config = self.config
        if not active.has_room_for(size_bytes, last_offset, config.segment_bytes, config.index_size_bytes_max) or (
            active.size_bytes and timestamp - active.first_time() > config.segment_ms - self._jitter_ms
        ):
            self.roll(now_ms)
            active = self._active
        if active.file is None:
            self._hold_active()
        if active.size_bytes:
            active.be_sure(config, config.segment_ms - self._jitter_ms)
        return active

    def _hold_active(self) -> None:
        try:
            self._active.hold_file()
        except OSError as error:
            raise ApiError(Error.KAFKA_STORAGE_ERROR, f"cannot open {self._active.log_path}: {error}") from error
        if self._active.size_bytes == 0:
            self._unsynced.add()
            self._unsynced.is_first_segment_new = len(self._segments) == 1

    def _put_back(self, active: SegmentEnd, error: OSError) -> None:
        assert active is self._active and active.file is not None
        path = self._active.log_path
        try:
            active.file.truncate(active.size_bytes)
        except OSError as second:
            self.fail(f"{path} cannot be put back after a failed write: {second}")
        self._count_failure(error)
        raise ApiError(Error.KAFKA_STORAGE_ERROR, f"cannot write {path}: {error}") from error

    # -- failing

    @property
    def failure(self) -> str | None:
        """Why the log takes no more appends, or None."""
        return self._failure

    def fail(self, reason: str) -> None:
        """The disk cannot be trusted any more: refuse every append from now on."""
        self._active.be_unsure()
        self._failure = self._failure or reason

    def _count_failure(self, error: OSError) -> None:
        """Once may be nothing; a disk that has room and fails again and again is not waited for."""
        if lacks_space(error):
            return
        offset, count = self._failed_writes
        self._failed_writes = (self.end_offset, count + 1 if offset == self.end_offset else 1)
        if self._failed_writes[1] >= FAILED_WRITES_MAX:
            self.fail(f"{self.folder} cannot be written: {error}")

    # -- rolling

    def roll(self, now_ms: int) -> None:
        """Close the last segment and begin a new one; an empty last segment stays."""
        old = self._active
        if old.size_bytes == 0:
            return
        new = Segment(self.files, self.folder, self.end_offset, created_ms=now_ms, fresh=True)
        try:
            self._unsynced.sync_first_segment(self._disk, self.folder)
            unsynced = old.finish()
            unsynced.append(write_snapshot(self._disk, self.folder, self.end_offset, self.producers))
            file = new.hold_file()
        except OSError as error:
            self._count_failure(error)
            raise ApiError(Error.KAFKA_STORAGE_ERROR, f"cannot begin a segment in {self.folder}: {error}") from error
        if file.size():
            file.truncate(0)
        old.let_go()
        self._unsynced.add_closed_segment(unsynced)
        self._segments.append(new)
        self._active = new

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll a segment that has been open for long enough although nothing is written now."""
        active, config = self._active, self.config
        if not active.size_bytes or now_ms - active.open_since_ms(config) <= config.segment_ms - self._jitter_ms:
            return False
        self.roll(now_ms)
        return True

    # -- reading

    def is_warm(self, offset: int, max_bytes: int) -> bool:
        """Whether `read` answers without waiting for the disk; if not, it may block, in another thread too."""
        return self._segments_from(offset)[0].is_warm(offset, max_bytes)

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one: bool = True) -> LogRange:
        """The batches from the one that holds `offset`, as far as they end below `end_offset` and fit `max_bytes`."""
        if offset < self.start_offset or offset > self.end_offset:
            raise ApiError(
                Error.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in {self.start_offset}..{self.end_offset}"
            )
        if offset >= end_offset:
            return NOTHING
        active = self._active
        if offset >= active.base_offset:
            return read_segment(active, offset, max_bytes, end_offset, at_least_one, self._rebuild_indexes)
        segments = self._segments_from(offset)
        if segments[0].base_offset > offset:  # retention has just taken it
            raise ApiError(Error.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in the log any more")
        return read_segments(segments, offset, max_bytes, end_offset, at_least_one, self._rebuild_indexes)

    def _segments_from(self, offset: int) -> list[Segment]:
        """The segments from the one that holds an offset on. Looks once at the list: the loop may be replacing it."""
        segments = self._segments
        return segments[max(0, bisect_right(segments, offset, key=_BASE_OFFSET) - 1) :]

    def _rebuild_indexes(self, segment: Segment) -> None:
        """A segment's indexes were found damaged: build them anew, beside it, for it may be growing meanwhile."""
        with self.exchanging:
            is_growing = segment is self._active
            rebuild_beside(self.files, self.folder, segment, self.config.index_interval_bytes, is_growing=is_growing)
            if not is_growing and not segment.is_replaced:
                self._unsynced.add(*segment.finish())

    @property
    def segments(self) -> list[Segment]:
        """The segments as they are now, oldest first."""
        return list(self._segments)

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int) -> FoundByTime | None:
        """The first record that is not older than a time. May block; may run in another thread."""
        return search_segments(
            list(self._segments),
            lambda segments: first_record_since(segments, self.epochs, timestamp_ms, self.start_offset, end_offset),
            self._rebuild_indexes,
        )

    def max_timestamp(self, *, end_offset: int) -> FoundByTime | None:
        """The record with the largest timestamp. May block; may run in another thread."""
        return search_segments(
            list(self._segments),
            lambda segments: newest_record(segments, self.epochs, self.start_offset, end_offset),
            self._rebuild_indexes,
        )

    def aborted_transactions(
        self, start_offset: int, end_offset: int, *, may_wait: bool = True
    ) -> list[AbortedTransaction] | None:
        """The aborted transactions that touch a range of offsets; None if it would wait for the disk and may not."""
        indexes = [segment.txn_index for segment in self._segments_from(start_offset)]
        return aborted_between(indexes, start_offset, end_offset, may_wait=may_wait)

    # -- flushing

    def needs_flush(self, now_ms: int) -> bool:
        """Whether the policy (messages, time) asks for a flush now."""
        unflushed = self.end_offset - self.recovery_point
        if unflushed <= 0 or self._unsynced.is_flushing:
            return False
        return unflushed >= self.config.flush_messages or now_ms - self._flushed_ms >= self.config.flush_ms

    @property
    def needs_early_flush(self) -> bool:
        """Whether to sync closed segments, and the names of files, although the policy does not ask for it."""
        return self._unsynced.needs_early_flush(will_roll=self._active.size_bytes > self.config.segment_bytes // 2)

    def begin_flush(self, *, closed_only: bool = False) -> FlushPlan:
        """What has to be synced to make everything so far durable, or only the closed segments. One plan at a time."""
        active = self._active
        file = active.open_file() if active.size_bytes and not closed_only else None
        end_offset = active.base_offset if closed_only else self.end_offset
        return self._unsynced.begin(self._disk, self.folder, file, self.epochs, end_offset, self._generation)

    def complete_flush(self, plan: FlushPlan) -> None:
        """The plan has run: what it covers is durable. NoSpaceError if it lacked room; else the log is done for."""
        self._unsynced.complete(plan)
        if isinstance(plan.error, NoSpaceError):
            raise plan.error
        if not plan.is_done:
            self.fail(f"a sync of {self.folder} failed: {plan.error}")
            raise ApiError(Error.KAFKA_STORAGE_ERROR, self._failure)
        if plan.end_offset > self._active.base_offset:
            self._flushed_ms = self._clock.wall_ms()
        if plan.generation == self._generation:
            self.recovery_point = max(self.recovery_point, plan.end_offset)

    def flush(self) -> None:
        """All three steps at once. Blocks."""
        plan = self.begin_flush()
        try:
            plan.run()
        except OSError:
            pass  # complete_flush says it
        self.complete_flush(plan)

    def rewrite_and_flush(self) -> None:
        """Make durable what an earlier process left: its failed sync may have marked pages as written. Blocks."""
        for segment in self._segments:
            if segment.size_bytes and segment.next_offset > self.recovery_point:
                segment.rewrite_from(self.recovery_point)
        self.flush()

    # -- forgetting the beginning

    def advance_start_offset(self, offset: int) -> bool:
        """Records below an offset are deleted; whether that is news. Their segments go with the next retention."""
        if offset > self.end_offset:
            raise ApiError(Error.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the end {self.end_offset}")
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def apply_retention(self, now_ms: int, *, high_watermark: int) -> list[DeletedSegment]:
        """Take the segments that are due out of the log; `remove_files` removes them from the disk then."""
        due = segments_to_delete(
            self._segments,
            self.config,
            now_ms=now_ms,
            high_watermark=high_watermark,
            start_offset=self.start_offset,
            modified_ms=lambda segment: self._disk.modified_ms(segment.log_path),
        )
        if len(due) == len(self._segments):
            try:
                self.roll(now_ms)
            except ApiError as error:
                if not lacks_space(error.__cause__):
                    raise
            if len(due) == len(self._segments):  # the last one is empty, or there is no room for another: it stays
                due.pop()
        if not due:
            return []
        self._segments = self._segments[len(due) :]
        self.size_bytes -= sum(deleted.size_bytes for deleted in due)
        for deleted in due:
            self.removed_bytes[deleted.reason] += deleted.size_bytes
        if self._segments[0].base_offset > self.start_offset:
            self.start_offset = self._segments[0].base_offset
            self.epochs.truncate_from_start(self.start_offset)
        return due

    def remove_files(self, deleted: Iterable[DeletedSegment]) -> None:
        """Remove the files of segments that retention took out, oldest first. Blocks; runs in another thread."""
        self._unsynced.sync_parent(self._disk, self.folder)
        remove_segments(self.files, self.folder, [segment.base_offset for segment in deleted])

    # -- compacting (`compaction.py`)

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> bool:
        """Go on with segments in the place of others that lie together; False if those are not all here any more."""
        segments = self._segments
        at = segments.index(old[0]) if old[0] in segments else 0
        if segments[at : at + len(old)] != old:  # a segment is equal to itself alone
            return False
        self._segments = [*segments[:at], *new, *segments[at + len(old) :]]
        self.size_bytes = sum(segment.size_bytes for segment in self._segments)
        return True

    def note_recovery_point(self) -> None:
        """Make durable what `recovery_point` and `start_offset` are now. Blocks."""
        if self._lower_recovery_point is not None:
            self._lower_recovery_point()

    # -- cutting the end

    def truncate_to(self, offset: int) -> bool:
        """Drop the batch that holds an offset and all after it, durably; whether there was anything. Blocks."""
        if offset >= self.end_offset:
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        at = bisect_right(self._segments, offset, key=_BASE_OFFSET) - 1
        kept = self._segments[: at + 1]
        last = kept[-1]
        position = last.locate(offset)
        end_offset = last.next_offset_at(position)
        self._prepare_cut(min(end_offset, self.recovery_point), min(end_offset, self.start_offset))
        self._drop_later_segments(at + 1)
        last.cut(position)
        self._set_segments(kept)
        self._forget_after_cut()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on at an offset. Blocks."""
        self._prepare_cut(min(offset, self.recovery_point), offset)
        remove_snapshots_after(self._disk, self.folder, -1)  # first: none may be found beside a log without batches
        self._drop_later_segments(0)
        segment = Segment(self.files, self.folder, offset, created_ms=self._active.created_ms, fresh=True)
        segment.hold_file()
        self._disk.sync_dir(self.folder)
        self._set_segments([segment])
        self.recovery_point = offset
        self.epochs.clear()
        self.producers.replace([], offset)

    def _prepare_cut(self, recovery_point: int, start_offset: int) -> None:
        """Make durable where the next recovery begins, before anything is cut: a crash in between completes the cut."""
        assert not self._unsynced.is_flushing, "a flush of this log is under way"
        self._generation += 1
        self.cleaned_offset = min(self.cleaned_offset, recovery_point)
        before = self.recovery_point, self.start_offset
        if (recovery_point, start_offset) != before:
            self.recovery_point, self.start_offset = recovery_point, start_offset
            try:
                self.note_recovery_point()
            except OSError as error:
                self.recovery_point, self.start_offset = before  # nothing is cut
                if isinstance(error, NoSpaceError):
                    raise ApiError(Error.KAFKA_STORAGE_ERROR, f"no room to note a cut: {error}") from error
                raise

    def _drop_later_segments(self, from_index: int) -> None:
        dropped = [segment.base_offset for segment in self._segments[from_index:]]
        self._unsynced.sync_parent(self._disk, self.folder)
        remove_segments(self.files, self.folder, reversed(dropped))

    def _forget_after_cut(self) -> None:
        """Epochs and producers become what they were at the new end."""
        self.epochs.truncate_from_end(self.end_offset)
        kept = remove_snapshots_after(self._disk, self.folder, self.end_offset)
        if not load_latest(self._disk, self.folder, kept, self.end_offset, self.producers):
            self.producers.replace([], self._segments[0].base_offset)
        replay(self.producers, self._segments, self.end_offset)

    # -- moving to another folder

    @property
    def cuts(self) -> int:
        """Grows whenever the log was cut: until it does, what was read of it is still in it."""
        return self._generation

    def take_over(self, moved: PartitionLog) -> None:
        """Go on with the files of a whole, durable copy of this log, on the loop while nobody writes to either.

        What is known of producers and epochs stays: it may be more than the batches that are still here tell.
        """
        assert (moved.end_offset, moved.recovery_point) == (self.end_offset, self.end_offset)
        assert not self._unsynced.is_flushing
        left, start_offset = self._segments, self.start_offset
        self.files, self.folder = moved.files, moved.folder
        self._lower_recovery_point, self._unsynced = moved._lower_recovery_point, moved._unsynced
        self._unsynced.epochs_differ()
        self.recovery_point = moved.recovery_point
        self._generation += 1
        self._set_segments(moved._segments)
        self.start_offset = moved.start_offset
        self.advance_start_offset(start_offset)
        self.use_config(self.config)
        for segment in left:
            segment.let_go()

    # -- the end

    def close(self) -> None:
        """Write and sync everything, so that the next start has nothing to recover. Blocks."""
        if self._failure is not None:
            return
        if self._active.size_bytes or self._active.base_offset:
            snapshot = write_snapshot(self._disk, self.folder, self.end_offset, self.producers)
            self._unsynced.add(snapshot, *self._active.finish())
        self.flush()
        for segment in self._segments:
            segment.let_go()
        self.files.drop_folder(self.folder)

    def delete(self, unique_hex: str) -> str:
        """Take the partition out of its log directory by renaming its folder, durably; returns the new path. Blocks.

        What is left is to remove that folder (`removal.remove_folder`), now or after a restart.
        """
        parent = parent_of(self.folder)
        target = f"{parent}/{names.deleted_folder_name(self.topic_partition, unique_hex)}"
        for segment in self._segments:
            segment.let_go()
        self.fail("the partition is deleted")
        self._disk.rename(self.folder, target)
        self.files.drop_folder(self.folder)
        self._disk.sync_dir(parent)
        return target
