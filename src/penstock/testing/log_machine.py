"""A partition's log under test together with what is known about it: which batches it holds, and which must survive.

Every step of a workload says what it is about to do to the *expected* state before it touches the disk, and what is
certain after it. `check` opens what a crash left, compares it with the expected state, opens it a second time to see
that nothing changes any more, and goes on writing to it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from operator import attrgetter
from uuid import UUID

from penstock.base.identifiers import TopicPartition
from penstock.log.compaction import Compaction, CompactionLimits
from penstock.log.compaction_plan import plan_compaction
from penstock.log.config import FOREVER, LogConfig
from penstock.log.loading import note_producer
from penstock.log.log_directory import LogDirectory
from penstock.log.partition_log import PartitionLog
from penstock.log.producers import ALL_STABLE, ProducerState, ProducerStates
from penstock.log.scan import walk_batches
from penstock.log.txn_index import AbortedTransaction
from penstock.testing.sim_disk import SimDisk
from penstock.wire.batch import each_batch, read_header, stamp
from penstock.wire.control import ControlType, build_control_batch, read_control_record
from penstock.wire.records import Record, build_batch

DIRECTORY = "/data"
PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
OTHER_TOPIC_ID = UUID(int=0x77)
CLUSTER_ID = "cluster"
_BASE_OFFSET = attrgetter("base_offset")
PRODUCERS = 3
KEYS = 12
SEED = bytes(16)
SMALL = LogConfig(
    segment_bytes=700,
    index_interval_bytes=100,
    retention_ms=-1,
    retention_bytes=-1,
    producer_id_expiration_ms=FOREVER,  # the files of these disks have no times
)


class FixedClock:
    """A clock that stands still unless it is moved."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = wall_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


@dataclass(frozen=True, slots=True)
class Stored:
    """One batch as it lies in the log."""

    base_offset: int
    last_offset: int
    content: bytes


@dataclass(slots=True)
class Expected:
    """What may and what must be found after a crash."""

    batches: list[Stored] = field(default_factory=list)  # in order; a prefix of them survives
    history: list[Stored] = field(default_factory=list)  # the same, as if nothing had been compacted
    exchanged: list[Stored] | None = None  # or a prefix of these: a segment is being exchanged …
    leftovers: frozenset[Stored] = frozenset()  # … and some of these may be among them
    is_compacted: bool = False
    durable_end: int = 0  # every batch below this offset survives
    start_low: int = 0  # the log begins somewhere between these two
    start_high: int = 0
    restarts_at: int | None = None  # or it is empty and begins here
    may_be_gone: bool = False  # the partition is being deleted
    must_be_gone: bool = False


class LogMachine:
    """One process with one partition on a simulated disk."""

    def __init__(self, disk: SimDisk, config: LogConfig = SMALL, seed: int = 0) -> None:
        self.disk = disk
        self.config = config
        self.clock = FixedClock()
        self.chance = random.Random(seed)
        self.expected = Expected()
        self.epoch = 1
        self.topic_id = TOPIC_ID
        self._sequences = dict.fromkeys(range(PRODUCERS), 0)
        self.directory: LogDirectory
        self.log: PartitionLog
        self.start()

    # -- steps

    def start(self) -> None:
        """Open everything, as a starting broker does."""
        self.directory = open_directory(self.disk, self.clock)
        self.log = self.directory.open_partition(PARTITION, self.topic_id, self.config)

    def append(
        self, count: int = 1, value_bytes: int = 20, producer: int | None = None, *, transactional: bool = False
    ) -> None:
        """One batch of a few records; an idempotent one if a producer is given. In its transaction, it goes on so."""
        records = [
            Record(n, self.clock.now_ms + n, b"k%d" % self.chance.randrange(KEYS), self._value(value_bytes))
            for n in range(count)
        ]
        if producer is None:
            encoded = build_batch(records)
        else:
            encoded = build_batch(
                records,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=self._sequences[producer],
                transactional=transactional or self.log.producers.is_open(producer, 0),
            )
            self._sequences[producer] += count
        batch = memoryview(bytearray(encoded))
        header = read_header(batch)
        base_offset = self._expect(batch)
        appended = self.log.append_as_leader(batch, header, self.epoch, self.clock.now_ms)
        assert (appended.base_offset, appended.duplicate) == (base_offset, False)

    def _value(self, size_bytes: int) -> bytes | None:
        return self.chance.randbytes(size_bytes) if self.chance.random() < 0.8 else None

    def end_transaction(self, producer: int, *, is_commit: bool) -> None:
        """The marker of a producer's transaction."""
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        marker = {"producer_id": producer, "producer_epoch": 0, "coordinator_epoch": 0}
        now_ms = self.clock.now_ms
        self._expect(memoryview(bytearray(build_control_batch(kind, timestamp=now_ms, **marker))))
        self.log.append_marker(kind, **marker, leader_epoch=self.epoch, now_ms=now_ms)

    def _expect(self, batch: memoryview) -> int:
        """A batch is about to be appended; where it will be."""
        base_offset = self.log.end_offset
        stamp(batch, base_offset, self.epoch)
        last_offset = base_offset + read_header(batch).last_offset_delta
        self.expected.batches.append(Stored(base_offset, last_offset, bytes(batch)))
        self.expected.history.append(self.expected.batches[-1])
        return base_offset

    def flush(self) -> None:
        self.log.flush()
        self.expected.durable_end = self.log.end_offset

    def flush_closed(self) -> None:
        """Only the closed segments."""
        plan = self.log.begin_flush(closed_only=True)
        plan.run()
        self.log.complete_flush(plan)
        self.expected.durable_end = max(self.expected.durable_end, plan.end_offset)

    def roll(self) -> None:
        self.log.roll(self.clock.now_ms)

    def new_epoch(self) -> None:
        self.epoch += 1

    def truncate(self, offset: int) -> None:
        """Cut; what is cut may be found as long as the cut is not over, and never afterwards."""
        kept = [stored for stored in self.expected.batches if stored.last_offset < offset]
        end = kept[-1].last_offset + 1 if kept else 0
        self.expected.durable_end = min(self.expected.durable_end, end)
        self.expected.start_low = min(self.expected.start_low, end)
        self.log.truncate_to(offset)
        self.expected.batches = kept
        self.expected.history = [stored for stored in self.expected.history if stored.last_offset < self.log.end_offset]
        self.expected.start_high = self.log.start_offset
        self._forget_sequences()

    def truncate_fully(self, offset: int) -> None:
        expected = self.expected
        expected.durable_end = 0
        expected.restarts_at = offset
        expected.start_low = min(expected.start_low, offset)
        expected.start_high = max(expected.start_high, offset)
        self.log.truncate_fully_and_start_at(offset)
        self.expected = Expected(durable_end=offset, start_low=offset, start_high=offset)
        self._forget_sequences()

    def _forget_sequences(self) -> None:
        """Go on where the log says that each producer stands."""
        for producer in self._sequences:
            state = self.log.producers.get(producer)
            self._sequences[producer] = state.last_sequence + 1 if state is not None else 0

    def delete_records(self, offset: int) -> None:
        self.expected.start_high = offset
        self.log.advance_start_offset(offset)

    def checkpoint(self) -> None:
        self.directory.write_offsets()
        self.expected.start_low = self.log.start_offset

    def retain(self, retention_bytes: int) -> None:
        """Let all go that is over a size."""
        self.log.use_config(replace(self.config, retention_bytes=retention_bytes))
        deleted = self.log.apply_retention(self.clock.now_ms, high_watermark=self.log.end_offset)
        self.expected.start_high = self.log.start_offset
        self.log.remove_files(deleted)
        if deleted:
            self.expected.start_low = max(self.expected.start_low, deleted[-1].next_offset)

    def pass_time(self, passed_ms: int) -> None:
        self.clock.now_ms += passed_ms

    def compact(self, map_bytes: int = 1 << 16) -> None:
        """One round over all that is closed, synced and stable."""
        log, expected = self.log, self.expected
        log.producers.high_watermark_moved(log.end_offset)
        stable = min(log.producers.first_unstable_offset, log.end_offset)
        plan = plan_compaction(log, last_stable_offset=stable, now_ms=self.clock.now_ms)
        compaction = Compaction(log, plan, CompactionLimits(map_bytes, 0.9, SEED), self.clock.now_ms)
        while not compaction.is_done:
            compaction.step(400)
            if compaction.exchange is not None:
                before = set(expected.batches)
                assert compaction.exchange.adopt()
                expected.exchanged = _read_segments(log)
                expected.leftovers = frozenset(before.difference(expected.exchanged))
                expected.is_compacted = True
                compaction.exchange.run()
                expected.batches, expected.exchanged = expected.exchanged, None
                expected.leftovers = frozenset()
                compaction.exchanged()
        log.cleaned_offset = compaction.cleaned_offset

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.directory.close()
        self.expected.durable_end = self.log.end_offset
        self.expected.start_low = self.log.start_offset
        self.disk.kill()
        self.start()
        assert self.log.recovery.was_clean

    def kill(self) -> None:
        """End the process without a word and start again: nothing is lost."""
        self.disk.kill()
        self.start()
        assert self.log.recovery.problem is None, self.log.recovery.problem

    def delete(self) -> None:
        self.expected.may_be_gone = True
        folder = self.directory.delete_partition(PARTITION)
        self.expected.must_be_gone = True
        self.directory.remove_deleted(folder)

    def recreate(self) -> None:
        """A new topic of the same name."""
        self.expected = Expected()
        self.topic_id = OTHER_TOPIC_ID
        self.log = self.directory.open_partition(PARTITION, self.topic_id, self.config)
        self._forget_sequences()

    # -- judging

    def check(self, disk: SimDisk) -> None:
        """What a crash left is what may be left; recovery is final; the log can be used."""
        first = self._open_and_compare(disk)
        if first is None:
            return
        logs = _log_files(disk)
        disk.kill()
        second = self._open_and_compare(disk)
        assert second is not None
        assert _log_files(disk) == logs, "a second recovery changed the log"
        assert second.recovery.cut_bytes == 0
        assert (second.start_offset, second.end_offset) == (first.start_offset, first.end_offset)
        assert second.epochs.entries() == first.epochs.entries(), f"{second.epochs.entries()} {first.epochs.entries()}"
        assert _by_id(second.producers) == _by_id(first.producers), "a second recovery changed the producers"
        self._use(disk, second)

    def _open_and_compare(self, disk: SimDisk) -> PartitionLog | None:
        directory = open_directory(disk, self.clock)
        stored = {found.topic_partition: found.topic_id for found in directory.stored_partitions()}
        gone = PARTITION not in stored
        if self.expected.must_be_gone or (self.expected.may_be_gone and gone):
            assert gone, "a deleted partition is back"
            return None
        assert stored.get(PARTITION) in (None, self.topic_id), "the partition of an older topic is back"
        log = directory.open_partition(PARTITION, self.topic_id, self.config)
        found = read_all(log)
        if not (self.expected.restarts_at == log.start_offset == log.end_offset and not found):
            self._compare(log, found)
            _check_transactions(log, self.expected.history, _read_segments(log))
        _check_state(log, found, is_compacted=self.expected.is_compacted)
        return log

    def _compare(self, log: PartitionLog, found: list[Stored]) -> None:
        expected = self.expected
        low, high = expected.start_low, expected.start_high
        assert low <= log.start_offset <= max(low, high), f"starts at {log.start_offset}, not in {low}..{high}"
        wanted = [stored for stored in expected.batches if stored.last_offset >= log.start_offset]
        if expected.exchanged is not None and found != wanted[: len(found)]:
            exchanged = sorted([*expected.exchanged, *expected.leftovers.intersection(found)], key=_BASE_OFFSET)
            wanted = [stored for stored in exchanged if stored.last_offset >= log.start_offset]
        assert found == wanted[: len(found)], "the log holds batches that were not written so"
        missing = [stored.base_offset for stored in wanted[len(found) :] if stored.last_offset < expected.durable_end]
        assert not missing, f"synced batches are lost: {missing}"
        end_offset = found[-1].last_offset + 1 if found else log.start_offset
        assert log.end_offset == end_offset, f"ends at {log.end_offset}, its last batch at {end_offset}"

    def _use(self, disk: SimDisk, log: PartitionLog) -> None:
        """Append, flush, lose power, and find it again."""
        end_offset = log.end_offset
        batch = memoryview(bytearray(build_batch([Record(0, self.clock.now_ms, None, b"after")])))
        log.append_as_leader(batch, read_header(batch), self.epoch + 1, self.clock.now_ms)
        log.flush()
        disk.crash(lost="all")
        directory = open_directory(disk, self.clock)
        again = directory.open_partition(PARTITION, self.topic_id, self.config)
        assert again.end_offset == end_offset + 1, f"ends at {again.end_offset} after a flush at {end_offset + 1}"
        assert read_all(again)[-1].content == bytes(batch)


def open_directory(disk: SimDisk, clock: FixedClock) -> LogDirectory:
    return LogDirectory.open(disk, clock, random.Random(0), DIRECTORY, node_id=1, cluster_id=CLUSTER_ID)


def read_all(log: PartitionLog) -> list[Stored]:
    """Every batch of a log, through its ordinary reads."""
    found: list[Stored] = []
    offset = log.start_offset
    while offset < log.end_offset:
        part = log.read(offset, 300, end_offset=log.end_offset)
        assert part.size_bytes, f"nothing at offset {offset}"
        content = memoryview(part.file.read(part.size_bytes, part.position))
        batches = list(each_batch(content))
        assert sum(len(batch) for _, batch in batches) == part.size_bytes, "half a batch"
        assert batches[0][0].last_offset >= offset
        found += [Stored(header.base_offset, header.last_offset, bytes(batch)) for header, batch in batches]
        offset = found[-1].last_offset + 1
    return found


def _read_segments(log: PartitionLog) -> list[Stored]:
    """Every batch in the segments of a log, those below its start as well."""
    return [
        Stored(header.base_offset, header.last_offset, bytes(batch))
        for segment in log.segments
        if segment.size_bytes
        for _, header, batch in walk_batches(segment.open_file(), 0, segment.size_bytes)
    ]


def _check_state(log: PartitionLog, found: list[Stored], *, is_compacted: bool) -> None:
    """Epochs and producers are what the batches say; every offset can be found."""
    producers = ProducerStates()
    epochs: dict[int, int] = {}
    for stored in found:
        header = read_header(stored.content)
        epochs.setdefault(header.leader_epoch, max(stored.base_offset, log.start_offset))
        note_producer(producers, None, header, memoryview(stored.content))
    if not found and log.epochs.entries():  # the epoch of the records that were deleted last may be remembered
        epochs = {log.epochs.latest: log.start_offset}
    if is_compacted:  # an epoch whose batches are gone may be known, or not any more
        for stored in found:
            if stored.base_offset >= log.start_offset:
                assert log.epochs.epoch_of(stored.base_offset) == read_header(stored.content).leader_epoch
    else:
        assert dict(log.epochs.entries()) == epochs, f"epochs {log.epochs.entries()}, the batches say {epochs}"
    for state in producers:
        known = log.producers.get(state.producer_id)
        assert known is not None
        if is_compacted:  # the newest record of the last batch may be gone, and with it its time
            if state.batches:
                assert (known.last_sequence, known.last_offset) == (state.last_sequence, state.last_offset)
        else:
            assert known.batches[len(known.batches) - len(state.batches) :] == state.batches
    if log.start_offset == 0:
        assert sorted(state.producer_id for state in log.producers) == sorted(state.producer_id for state in producers)
    for stored in found:
        for offset in {max(stored.base_offset, log.start_offset), stored.last_offset}:
            part = log.read(offset, 1, end_offset=log.end_offset)
            assert part.file.read(part.size_bytes, part.position) == stored.content


def _check_transactions(log: PartitionLog, history: list[Stored], found_batches: list[Stored]) -> None:
    """Open and aborted transactions are what was written: all of it or, after a crash, at least what is not deleted."""
    written = [stored for stored in history if stored.last_offset < log.end_offset]
    first_unstable, aborted = _transactions_of(written)
    kept_unstable, kept = _transactions_of(found_batches)
    log.producers.high_watermark_moved(log.end_offset)
    found = log.producers.first_unstable_offset
    assert first_unstable <= found <= kept_unstable, f"open from {found} on, not {first_unstable}..{kept_unstable}"
    known = {entry.last_offset: entry for entry in log.aborted_transactions(0, log.end_offset + 1) or ()}
    assert kept.keys() <= known.keys() <= aborted.keys(), f"aborted are {known}, not {aborted} or at least {kept}"
    for offset, entry in known.items():
        full, least = aborted[offset], kept.get(offset, entry)
        assert entry.producer_id == full.producer_id
        assert full.first_offset <= entry.first_offset <= least.first_offset
        assert full.last_stable_offset <= entry.last_stable_offset <= least.last_stable_offset


def _transactions_of(history: list[Stored]) -> tuple[int, dict[int, AbortedTransaction]]:
    """Where the first open transaction begins, and the aborted ones by the offsets of their markers."""
    first_offsets: dict[int, int] = {}
    aborted: dict[int, AbortedTransaction] = {}
    for stored in history:
        header = read_header(stored.content)
        if not header.is_control:
            if header.is_transactional:
                first_offsets.setdefault(header.producer_id, header.base_offset)
            continue
        if not header.record_count:
            continue
        first_offset = first_offsets.pop(header.producer_id, None)
        is_abort = read_control_record(memoryview(stored.content)).type is ControlType.ABORT
        if first_offset is not None and is_abort:
            stable = min(first_offsets.values(), default=header.next_offset)
            entry = AbortedTransaction(header.producer_id, first_offset, header.base_offset, stable)
            aborted[header.base_offset] = entry
    return min(first_offsets.values(), default=ALL_STABLE), aborted


def _by_id(producers: ProducerStates) -> dict[int, ProducerState]:
    return {state.producer_id: state for state in producers}


def _log_files(disk: SimDisk) -> dict[str, bytes | None]:
    return {path: content for path, content in disk.snapshot().items() if path.endswith(".log")}
