"""What compaction leaves of a log, compared with a dumb model; and that the log is none the worse for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.base.crc import crc32c
from penstock.base.errors import ApiError
from penstock.base.world import NoSpaceError
from penstock.log.compaction import Compaction, CompactionLimits
from penstock.log.compaction_plan import grouped, plan_compaction
from penstock.log.config import DAY_MS, LogConfig
from penstock.log.log_directory import CLEANED_FILE, LogDirectory
from penstock.log.partition_log import PartitionLog
from penstock.log.producers import ProducerState
from penstock.log.scan import DamagedLog
from penstock.testing.log_compaction import SEED, compact, records_of, surviving
from penstock.testing.log_machine import DIRECTORY, PARTITION, SMALL, TOPIC_ID, FixedClock, open_directory, read_all
from penstock.testing.sim_device import os_error
from penstock.testing.sim_disk import SimDisk
from penstock.wire.batch import DELETE_HORIZON, LOG_APPEND_TIME, read_header
from penstock.wire.compression import Compression
from penstock.wire.control import ControlType
from penstock.wire.records import Record, build_batch, read_records

CONFIG = replace(SMALL, segment_bytes=2500, cleanup_policy=frozenset({"compact"}))


class Site:
    """A compacted log, and everything that was written to it."""

    def __init__(self, seed: int = 0, config: LogConfig = CONFIG, keys: int = 20) -> None:
        self.clock = FixedClock()
        self.disk = SimDisk(wall_ms=self.clock.wall_ms)
        self.config = config
        self.chance = random.Random(seed)
        self.keys = keys
        self.directory: LogDirectory = open_directory(self.disk, self.clock)
        self.log: PartitionLog = self.directory.open_partition(PARTITION, TOPIC_ID, config)
        self.written: list[Record] = []
        self.sequences: dict[int, int] = {}

    def append(self, records: list[Record] | None = None, **options: object) -> int:
        """One batch, random if nothing is given; its base offset."""
        chance, now_ms = self.chance, self.clock.now_ms
        if records is None:
            records = [
                Record(
                    n,
                    now_ms + chance.randrange(1000),
                    b"key %d" % chance.randrange(self.keys),
                    None if chance.random() < 0.2 else chance.randbytes(chance.randrange(60)),
                    [("h", b"x")] if chance.random() < 0.3 else [],
                )
                for n in range(chance.randrange(1, 8))
            ]
        options.setdefault("compression", Compression(chance.randrange(5)))
        batch = memoryview(bytearray(build_batch(records, **options)))  # type: ignore[arg-type]
        base_offset = self.log.append_as_leader(batch, read_header(batch), 1, now_ms).base_offset
        self.written += [replace(record, offset=base_offset + record.offset) for record in records]
        return base_offset

    def append_value(self, key: bytes, value: bytes | None, **options: object) -> int:
        return self.append([Record(0, self.clock.now_ms, key, value)], compression=Compression.NONE, **options)

    def append_as(self, producer: int, keys: list[bytes], *, transactional: bool = False) -> int:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(keys)
        records = [Record(n, self.clock.now_ms, key, b"of %d" % producer) for n, key in enumerate(keys)]
        return self.append(
            records, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=transactional
        )

    def end(self, producer: int, kind: ControlType) -> int:
        return self.log.append_marker(
            kind,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            leader_epoch=1,
            now_ms=self.clock.now_ms,
        ).base_offset

    def close_segment(self) -> None:
        self.log.roll(self.clock.now_ms)
        self.log.flush()
        self.log.producers.high_watermark_moved(self.log.end_offset)

    def compact(self, **options: int) -> Compaction:
        return compact(self.log, self.clock.now_ms, **options)

    def records(self) -> list[Record]:
        return records_of(stored.content for stored in read_all(self.log))

    def reopen(self, *, cleanly: bool = True) -> None:
        if cleanly:
            self.directory.close()
        self.disk.kill()
        self.directory = open_directory(self.disk, self.clock)
        self.log = self.directory.open_partition(PARTITION, TOPIC_ID, self.config)
        assert self.log.recovery.problem is None

    def files(self) -> list[str]:
        return self.disk.list_dir(self.log.folder)

    def check_whole(self) -> None:
        """Batches in order, every offset leads to the next record, indexes fit, nothing is lying around."""
        batches = read_all(self.log)
        assert all(a.last_offset < b.base_offset for a, b in pairwise(batches))
        for offset in range(self.log.start_offset, self.log.end_offset):
            found = self.log.read(offset, 1, end_offset=self.log.end_offset)
            header = read_header(found.file.read(found.size_bytes, found.position))
            assert header.last_offset >= offset
            assert header.base_offset == next(b.base_offset for b in batches if b.last_offset >= offset)
            assert found.damage() is None
        for segment in self.log.segments[:-1]:
            for relative, position in segment.index.entries():
                assert segment.locate(segment.base_offset + relative) == position
        assert not [name for name in self.files() if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert self.log.size_bytes == sum(segment.size_bytes for segment in self.log.segments)


@pytest.mark.parametrize("seed", range(12))
def test_random_logs_are_what_a_dumb_model_says(seed: int) -> None:
    """Several rounds, every codec, maps that are too small, restarts in between; without transactions."""
    site = Site(seed, keys=1 + seed * 3)
    chance = random.Random(f"rounds {seed}")
    expected: list[Record] = []
    for _ in range(5):
        before = len(site.written)
        for _ in range(chance.randrange(60)):
            site.append()
        expected += site.written[before:]
        if chance.random() < 0.7:
            site.close_segment()
        done = site.compact(map_bytes=chance.choice([100, 400, 1 << 16]), step_bytes=chance.choice([1, 700, 10**6]))
        expected = surviving(expected, done.cleaned_offset)
        if seed % 3 == 0:
            site.reopen(cleanly=chance.random() < 0.5)
        assert site.records() == expected
        site.check_whole()
    newest = {record.key: record for record in site.written}
    assert {record.key: record for record in site.records()} == newest


def test_tombstones_stay_for_their_time_after_the_first_round_and_go_then() -> None:
    site = Site()
    site.append_value(b"a", b"1")
    deleted_at = site.append_value(b"a", None)
    site.append_value(b"b", b"2")
    site.close_segment()
    site.clock.now_ms += 10 * DAY_MS  # however old it is
    assert str(site.compact().removed).startswith("1 superseded, 0 tombstones")
    assert [record.offset for record in site.records()] == [deleted_at, 2]
    header = read_header(read_all(site.log)[0].content)
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == site.clock.now_ms + DAY_MS
    assert site.records()[0].timestamp == site.written[1].timestamp

    for passed_ms, offsets in ((DAY_MS - 1, [deleted_at, 2, 3]), (1, [2, 3, 4])):
        site.clock.now_ms += passed_ms
        site.append_value(b"c%d" % passed_ms, b"3")
        site.close_segment()
        site.compact()
        assert [record.offset for record in site.records()] == offsets
    site.check_whole()


def test_a_tombstone_among_other_records_keeps_the_times_of_all() -> None:
    site = Site()
    now_ms = site.clock.now_ms
    records = [Record(0, now_ms + 5, b"a", b"1"), Record(1, now_ms - 7, b"b", None), Record(2, now_ms + 9, b"a", b"2")]
    site.append(records, compression=Compression.ZSTD)
    site.close_segment()
    site.compact()
    assert site.records() == site.written[1:]
    assert read_header(read_all(site.log)[0].content).max_timestamp == now_ms + 9
    site.append_value(b"a", b"3")
    site.close_segment()
    site.compact()
    assert site.records() == [site.written[1], site.written[3]]
    assert read_header(read_all(site.log)[0].content).max_timestamp == now_ms - 7


def test_nothing_at_or_above_the_bounds_is_touched() -> None:
    site = Site()
    for _ in range(3):
        site.append_value(b"a", b"x" * 100)
        site.close_segment()
    site.append_value(b"a", b"active")
    log, now_ms = site.log, site.clock.now_ms
    plan = plan_compaction(log, last_stable_offset=2, now_ms=now_ms)
    assert (plan.end_offset, len(plan.segments)) == (2, 2)
    assert plan_compaction(log, last_stable_offset=1, now_ms=now_ms).end_offset == 1
    assert plan_compaction(log, last_stable_offset=4, now_ms=now_ms).end_offset == 3  # not the active segment
    log.recovery_point = 2
    assert plan_compaction(log, last_stable_offset=4, now_ms=now_ms).end_offset == 2
    log.recovery_point = 4
    log.use_config(replace(CONFIG, min_compaction_lag_ms=1000))
    assert plan_compaction(log, last_stable_offset=4, now_ms=now_ms).segments == []
    assert len(plan_compaction(log, last_stable_offset=4, now_ms=now_ms + 1000).segments) == 3


def test_the_dirty_ratio_and_the_longest_lag_decide_when() -> None:
    site = Site(config=replace(CONFIG, min_cleanable_dirty_ratio=0.5))
    for _ in range(2):
        site.append_value(b"a", b"x" * 100)
        site.close_segment()
    log, now_ms = site.log, site.clock.now_ms
    plan = plan_compaction(log, last_stable_offset=2, now_ms=now_ms)
    assert plan.dirty_ratio == 1.0 and plan.is_due(log.config)
    log.cleaned_offset = 1
    plan = plan_compaction(log, last_stable_offset=2, now_ms=now_ms)
    assert plan.dirty_ratio == 0.5 and not plan.is_due(log.config)
    late = replace(log.config, max_compaction_lag_ms=5000)
    log.use_config(late)
    assert not plan_compaction(log, last_stable_offset=2, now_ms=now_ms + 5000).is_due(late)
    assert plan_compaction(log, last_stable_offset=2, now_ms=now_ms + 5001).is_due(late)
    log.cleaned_offset = 2
    assert not plan_compaction(log, last_stable_offset=2, now_ms=now_ms + 9000).is_due(late)
    log.cleaned_offset = 77  # of a log that had more
    assert plan_compaction(log, last_stable_offset=2, now_ms=now_ms).first_dirty_offset == 0


def test_closed_segments_that_were_recovered_are_synced_and_so_compacted() -> None:
    """Only what is synced is compacted; in a log that nobody writes to any more nothing else would see to that."""
    site = Site()
    site.append_value(b"a", b"x")
    site.append_value(b"a", b"y")
    site.log.roll(site.clock.now_ms)
    site.append_value(b"b", b"x")
    site.reopen(cleanly=False)
    log = site.log
    assert log.recovery_point == 0 and len(log.segments) == 2
    assert log.needs_early_flush
    plan = log.begin_flush(closed_only=True)
    plan.run()
    log.complete_flush(plan)
    assert log.recovery_point == 2 and not log.needs_early_flush
    assert plan_compaction(log, last_stable_offset=3, now_ms=site.clock.now_ms).dirty_bytes > 0
    site.disk.crash()
    site.reopen(cleanly=False)
    assert [stored.base_offset for stored in read_all(site.log)][:2] == [0, 1]


def test_one_open_segment_that_was_recovered_costs_no_sync() -> None:
    site = Site()
    site.append_value(b"a", b"x")
    site.reopen(cleanly=False)
    assert not site.log.needs_early_flush


@pytest.mark.parametrize("time_ms", [-1, 0, FixedClock().now_ms + 3_000_000])
def test_no_time_that_a_client_gives_keeps_a_record_for_longer(time_ms: int) -> None:
    site = Site(config=replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000))
    site.append([Record(0, time_ms, b"a", b"x")])
    site.append_value(b"a", b"y")
    site.close_segment()
    log, now_ms = site.log, site.clock.now_ms
    assert not plan_compaction(log, last_stable_offset=2, now_ms=now_ms + 5000).is_due(log.config)
    assert plan_compaction(log, last_stable_offset=2, now_ms=now_ms + 5001).is_due(log.config)


def test_a_restart_does_not_give_an_open_segment_more_time() -> None:
    site = Site(config=replace(CONFIG, segment_ms=5000, max_compaction_lag_ms=5000))
    site.append_value(b"a", b"x")
    site.clock.now_ms += 4000
    site.reopen()
    assert not site.log.roll_if_due(site.clock.now_ms + 1000)
    assert site.log.roll_if_due(site.clock.now_ms + 1001)


def test_small_segments_become_one_as_far_as_they_fit() -> None:
    site = Site()
    for _ in range(6):
        site.append_value(b"a", b"x" * 900)
        site.close_segment()
    closed = site.log.segments[:-1]
    size_bytes = closed[0].size_bytes
    for fitting, sizes in ((2, [2, 2, 2]), (3, [3, 3]), (4, [4, 2]), (0, [1] * 6)):
        config = replace(CONFIG, segment_bytes=max(1, size_bytes * fitting))
        assert [len(group) for group in grouped(closed, config)] == sizes
    for segment in closed[3:]:
        segment.next_offset += 2**31
    for segment in closed[4:]:
        segment.base_offset += 2**31
    assert [len(group) for group in grouped(closed, replace(CONFIG, segment_bytes=10**6))] == [3, 1, 2]


def test_aborted_records_go_at_once_and_their_marker_after_them() -> None:
    site = Site()
    site.append_as(1, [b"a", b"b"], transactional=True)
    site.end(1, ControlType.ABORT)
    site.append_value(b"a", b"good")
    site.append_as(2, [b"c"], transactional=True)
    site.end(2, ControlType.COMMIT)
    site.append_as(1, [b"d"])
    site.append_as(2, [b"d"])
    site.close_segment()

    def control_offsets() -> list[int]:
        found = [stored for stored in read_all(site.log) if read_header(stored.content).is_control]
        return [stored.base_offset for stored in found if read_header(stored.content).record_count]

    site.compact()
    assert [record.offset for record in site.records()] == [3, 4, 7]  # the good one, the committed one, the last d
    assert control_offsets() == [2, 5]
    assert len(site.log.aborted_transactions(0, site.log.end_offset) or []) == 1
    for round_number, markers in enumerate(([2, 5], [5], [5])):
        site.clock.now_ms += DAY_MS
        site.append_value(b"other %d" % round_number, b"1")
        site.close_segment()
        site.compact()
        assert control_offsets() == markers, round_number  # seen without records, horizon over: gone
        site.reopen(cleanly=False)
        assert not site.log.aborted_transactions(0, site.log.end_offset)
    site.check_whole()


def test_a_transaction_that_goes_on_is_not_touched() -> None:
    site = Site()
    site.append_value(b"a", b"1")
    site.close_segment()
    site.append_as(1, [b"a"], transactional=True)
    site.close_segment()
    site.append_value(b"a", b"2")
    site.close_segment()
    done = site.compact()
    assert done.cleaned_offset == 1
    assert [record.offset for record in site.records()] == [0, 1, 2]
    site.end(1, ControlType.COMMIT)
    site.close_segment()
    site.compact()
    assert [record.offset for record in site.records()] == [2]


def test_the_last_batch_of_each_producer_stays_so_that_a_retry_is_known() -> None:
    site = Site()
    for number in range(3):
        site.append_as(number, [b"a", b"b", b"c"])
        site.append_as(number, [b"a", b"b"])
    for key in (b"a", b"b", b"c"):
        site.append_value(key, b"later")
    site.close_segment()
    before = {state.producer_id: told(state) for state in site.log.producers}
    site.compact()
    assert [record.value for record in site.records()] == [b"later"] * 3
    assert [read_header(stored.content).record_count for stored in read_all(site.log)][:3] == [0, 0, 0]
    for name in site.files():
        if name.endswith(".snapshot"):
            site.disk.remove(f"{site.log.folder}/{name}")
    site.reopen(cleanly=False)
    assert {state.producer_id: told(state) for state in site.log.producers} == before
    retry = memoryview(
        bytearray(
            build_batch(
                [Record(n, site.clock.now_ms, b"a", b"x") for n in range(2)],
                producer_id=1,
                producer_epoch=0,
                base_sequence=3,
            )
        )
    )
    assert site.log.append_as_leader(retry, read_header(retry), 1, site.clock.now_ms).duplicate


def told(state: ProducerState) -> tuple[int, int, int]:
    return state.epoch, state.last_sequence, state.last_offset


def test_the_last_batch_of_the_round_stays_so_that_the_end_is_known() -> None:
    site = Site()
    site.append([Record(n, site.clock.now_ms, None, b"no key") for n in range(3)], compression=Compression.NONE)
    site.close_segment()
    site.compact()
    assert [(stored.base_offset, stored.last_offset) for stored in read_all(site.log)] == [(0, 2)]
    assert site.records() == []
    site.reopen(cleanly=False)
    assert site.log.end_offset == 3


def test_times_given_by_the_log_stay() -> None:
    site = Site(config=replace(CONFIG, message_timestamp_type="LogAppendTime"))
    site.append_value(b"a", b"1")
    site.append([Record(0, 5, b"a", b"2"), Record(1, 6, b"b", None)], compression=Compression.GZIP)
    site.close_segment()
    appended_ms = site.clock.now_ms
    site.clock.now_ms += 5000
    site.compact()
    assert [(record.offset, record.timestamp) for record in site.records()] == [(1, appended_ms), (2, appended_ms)]
    assert read_header(read_all(site.log)[0].content).attributes & LOG_APPEND_TIME


def test_finding_by_time_and_cutting_work_in_what_is_left() -> None:
    site = Site(3)
    for _ in range(120):
        site.append()
        site.clock.now_ms += 10
    site.close_segment()
    site.compact()
    left = site.records()
    for record in left:
        found = site.log.offset_for_timestamp(record.timestamp, end_offset=site.log.end_offset)
        assert found is not None
        assert found.offset == next(each.offset for each in left if each.timestamp >= record.timestamp)
    newest = site.log.max_timestamp(end_offset=site.log.end_offset)
    assert newest is not None and newest.timestamp == max(record.timestamp for record in left)
    cut_at = left[len(left) // 2].offset
    site.log.truncate_to(cut_at)
    assert site.log.cleaned_offset <= site.log.end_offset <= cut_at
    site.written = [record for record in site.written if record.offset < site.log.end_offset]
    for _ in range(30):
        site.append()
    site.close_segment()
    site.compact()
    site.check_whole()
    site.reopen()
    site.check_whole()


def test_who_reads_an_exchanged_segment_reads_on() -> None:
    site = Site()
    for _ in range(60):
        site.append()
    site.close_segment()
    log = site.log
    old = log.segments[:-1]
    held = log.read(0, 10**6, end_offset=log.end_offset)
    content = held.file.read(held.size_bytes, held.position)
    site.compact()
    assert log.segments[0] is not old[0]
    assert held.file.read(held.size_bytes, held.position) == content
    for segment in old:  # and who has only its place finds its own batches in it
        position = segment.locate(segment.next_offset - 1)
        assert read_header(segment.open_file().read(61, position)).next_offset == segment.next_offset


def test_the_round_is_written_down_and_lowered_by_a_cut() -> None:
    site = Site()
    for _ in range(50):
        site.append()
    site.close_segment()
    done = site.compact()
    site.directory.write_offsets()
    path = f"{DIRECTORY}/{CLEANED_FILE}"
    assert site.disk.open(path).read(100, 0) == b"0\n1\norders 0 %d\n" % done.cleaned_offset
    site.reopen(cleanly=False)
    assert site.log.cleaned_offset == done.cleaned_offset
    site.log.truncate_to(10)
    assert site.log.cleaned_offset <= 10
    site.reopen(cleanly=False)
    assert site.log.cleaned_offset <= 10


def test_a_log_that_was_cut_meanwhile_is_left_as_it_is() -> None:
    site = Site()
    for _ in range(60):
        site.append()
    site.close_segment()
    log = site.log
    plan = plan_compaction(log, last_stable_offset=log.end_offset, now_ms=site.clock.now_ms)
    round_ = Compaction(log, plan, CompactionLimits(1 << 16, 0.9, SEED), site.clock.now_ms)
    while round_.exchange is None:
        round_.step(1000)
    log.truncate_to(log.segments[1].base_offset + 3)
    before = read_all(log)
    assert not round_.exchange.adopt()
    round_.exchange.discard()
    round_.abandon()
    assert read_all(log) == before
    site.check_whole()


@pytest.mark.parametrize("operation", ["write", "create", "sync"])
def test_a_round_that_is_abandoned_leaves_nothing(operation: str) -> None:
    site = Site()
    for _ in range(60):
        site.append()
    site.close_segment()
    log = site.log
    before = read_all(log)
    plan = plan_compaction(log, last_stable_offset=log.end_offset, now_ms=site.clock.now_ms)
    round_ = Compaction(log, plan, CompactionLimits(1 << 16, 0.9, SEED), site.clock.now_ms)
    refuse_cleaned(site, operation, ".cleaned")
    with pytest.raises(OSError):
        while round_.exchange is None:
            round_.step(100)
    site.disk.device.before_operation = None
    round_.abandon()
    assert read_all(log) == before
    site.check_whole()


def refuse_cleaned(site: Site, operation: str, ending: str) -> None:
    def refuse(begun: object) -> None:
        if operation in str(begun) and ending in str(begun):
            raise os_error(28, ending)

    site.disk.device.before_operation = refuse


def test_an_exchange_without_room_is_taken_back() -> None:
    site = Site()
    for _ in range(60):
        site.append()
    site.close_segment()
    log = site.log
    before, segments = read_all(log), log.segments
    plan = plan_compaction(log, last_stable_offset=log.end_offset, now_ms=site.clock.now_ms)
    round_ = Compaction(log, plan, CompactionLimits(1 << 16, 0.9, SEED), site.clock.now_ms)
    while round_.exchange is None:
        round_.step(1000)
    exchange = round_.exchange
    refuse_cleaned(site, "rename", ".index.cleaned")
    assert exchange.adopt()
    exchange.run()
    site.disk.device.before_operation = None
    assert exchange.was_undone
    exchange.give_back()
    assert log.segments == segments and read_all(log) == before
    assert log.removed_bytes["compaction"] == 0
    site.check_whole()
    site.reopen(cleanly=False)
    assert read_all(site.log) == before


def test_a_damaged_log_is_refused_and_a_batch_whose_inside_lies_is_kept() -> None:
    site = Site()
    site.append_value(b"a", b"1")
    lying = bytearray(build_batch([Record(0, site.clock.now_ms, b"a", b"2")]))
    lying[65] = 0x7F  # the length of the key
    lying[17:21] = crc32c(lying[21:]).to_bytes(4, "big")
    site.log.append_as_leader(memoryview(lying), read_header(lying), 1, site.clock.now_ms)
    site.append_value(b"a", b"3")
    site.close_segment()
    site.compact()
    assert [stored.base_offset for stored in read_all(site.log)] == [1, 2]
    file = site.log.segments[0].open_file()
    file.write([b"\xff"], 70)
    site.append_value(b"a", b"4")
    site.close_segment()
    with pytest.raises(DamagedLog):
        site.compact()


def test_retention_takes_emptied_segments_with_the_next_one() -> None:
    site = Site(config=replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000))
    for _ in range(3):
        site.append_value(b"a", b"x")
        site.close_segment()
    site.compact()
    site.append_value(b"b", b"x")
    site.clock.now_ms += 5000
    deleted = site.log.apply_retention(site.clock.now_ms, high_watermark=site.log.end_offset)
    site.log.remove_files(deleted)
    assert site.log.start_offset == site.log.end_offset == 4
    assert site.log.removed_bytes["time"] > 0 and site.log.removed_bytes["compaction"] > 0


def test_a_compacted_file_is_as_old_as_its_records() -> None:
    site = Site()
    site.append_value(b"a", b"x")
    site.append_value(b"a", b"x")
    site.close_segment()
    path = site.log.segments[0].log_path
    modified_ms = site.disk.modified_ms(path)
    site.clock.now_ms += 10**7
    site.compact()
    assert site.disk.modified_ms(path) == modified_ms


ORIGINAL, COMPACTED = "the old log", "the new one"


@pytest.mark.parametrize(
    ("rename", "result"),
    [
        (lambda name: name + ".cleaned", ORIGINAL),
        (lambda name: name + (".swap" if name.endswith(".log") else ".cleaned"), ORIGINAL),
        (lambda name: name + (".cleaned" if name.endswith(".log") else ".swap"), ORIGINAL),
        (lambda name: name + ".swap", COMPACTED),
    ],
)
def test_what_an_interrupted_exchange_left_is_completed_or_undone(rename: Callable[[str], str], result: str) -> None:
    """The states are those in which Apache Kafka's own cleaner may be interrupted as well."""
    site = Site(4)
    for _ in range(40):
        site.append()
    site.close_segment()
    site.directory.close()
    folder, disk = site.log.folder, site.disk
    originals = {name: disk.open(f"{folder}/{name}").read(10**6, 0) for name in disk.list_dir(folder)}
    site.reopen()
    before = read_all(site.log)
    site.log.use_config(replace(CONFIG, segment_bytes=10**6))
    site.compact()
    site.directory.close()
    after = {name: disk.open(f"{folder}/{name}").read(10**6, 0) for name in disk.list_dir(folder)}
    site.reopen()
    compacted = read_all(site.log)
    disk.kill()
    for name in disk.list_dir(folder):
        disk.remove(f"{folder}/{name}")
    stem = "00000000000000000000."
    for name, content in [
        *originals.items(),
        *((rename(name), content) for name, content in after.items() if name.startswith(stem)),
    ]:
        disk.open(f"{folder}/{name}", create=True).write([content], 0)
    site.reopen(cleanly=False)
    assert read_all(site.log) == (before if result == ORIGINAL else compacted)
    site.check_whole()


def test_reading_in_a_gap_goes_on_after_it_and_beyond_the_end_is_refused() -> None:
    site = Site()
    for _ in range(10):
        site.append_value(b"a", b"x")
    site.close_segment()
    site.append_value(b"b", b"x")
    site.compact()
    for offset in range(10):
        found = site.log.read(offset, 10**6, end_offset=site.log.end_offset)
        (record,) = read_records(memoryview(found.file.read(found.size_bytes, found.position)))
        assert record.offset == 9
    with pytest.raises(ApiError):
        site.log.read(12, 1, end_offset=site.log.end_offset)


def test_lacking_room_is_told_as_such() -> None:
    site = Site()
    for _ in range(60):
        site.append()
    site.close_segment()
    refuse_cleaned(site, "write", ".cleaned")
    with pytest.raises(OSError) as refused:
        site.compact()
    assert refused.value.errno == NoSpaceError.of(refused.value).errno == 28
