"""Appending, reading, rolling and flushing, by examples and against a list of batches."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.log.config import HOUR_MS, LogConfig
from penstock.log.partition_log import FAILED_WRITES_MAX, PartitionLog
from penstock.log.producers import ALL_STABLE
from penstock.testing.log_machine import LogMachine, read_all
from penstock.testing.sim_disk import SimDisk
from penstock.wire.batch import CONTROL, LOG_APPEND_TIME, each_batch, read_header
from penstock.wire.control import ControlType
from penstock.wire.records import read_records

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def refused(call: Any, *arguments: Any, **named: Any) -> Error:
    with pytest.raises(ApiError) as caught:
        call(*arguments, **named)
    return caught.value.error


def log_bytes(log: PartitionLog, offset: int, max_bytes: int, **options: Any) -> bytes:
    found = log.read(offset, max_bytes, **{"end_offset": log.end_offset, **options})
    return found.file.read(found.size_bytes, found.position)


# -- against a model


@st.composite
def workloads(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    kinds = st.sampled_from(
        ["append"] * 8 + ["flush", "roll", "new_epoch", "truncate", "delete_records", "retain", "restart", "kill"]
    )
    return draw(st.lists(st.tuples(kinds, st.integers(0, 999), st.integers(0, 999)), min_size=1, max_size=40))


@settings(max_examples=60, deadline=None)
@given(workloads())
def test_it_holds_what_a_list_would_hold(steps: list[tuple[str, int, int]]) -> None:
    machine = LogMachine(SimDisk())
    for kind, first, second in steps:
        start, end = machine.log.start_offset, machine.log.end_offset
        if kind == "append":
            machine.append(1 + first % 4, second % 150, [None, 0, 1, 2][first % 4])
        elif kind == "truncate":
            machine.truncate(start + first % (end - start + 1))
            machine.new_epoch()
        elif kind == "delete_records":
            machine.delete_records(start + first % (end - start + 1))
        elif kind == "retain":
            machine.retain(first * 2)
        else:
            getattr(machine, kind)()
        _compare(machine, first, second)


def _compare(machine: LogMachine, first: int, second: int) -> None:
    log = machine.log
    wanted = [stored for stored in machine.expected.batches if stored.last_offset >= log.start_offset]
    assert read_all(log) == wanted
    assert log.end_offset == (wanted[-1].last_offset + 1 if wanted else log.end_offset)
    if not wanted:
        return
    offset = log.start_offset + first % (log.end_offset - log.start_offset)
    end_offset = offset + second % (log.end_offset - offset + 1)
    max_bytes = 1 + (first * second) % 900
    content = log_bytes(log, offset, max_bytes, end_offset=end_offset)
    at = next(n for n, stored in enumerate(wanted) if stored.last_offset >= offset)
    below = [stored.content for stored in wanted[at:] if stored.last_offset < end_offset]
    assert b"".join(below).startswith(content)
    assert len(content) <= max_bytes or content == below[0]
    assert content or not below


# -- appending


def test_offsets_and_epoch_are_filled_in(bench: Any) -> None:
    log = bench.open()
    assert bench.append(log, 3, epoch=5) == (0, 2, -1, False)
    assert bench.append(log, 2, epoch=5) == (3, 4, -1, False)
    header = read_header(log_bytes(log, 3, 10_000))
    assert (header.base_offset, header.leader_epoch) == (3, 5)
    assert log.epochs.entries() == [(5, 0)]


def test_an_older_leader_is_fenced(bench: Any) -> None:
    log = bench.open()
    bench.append(log, epoch=5)
    assert refused(bench.append, log, epoch=4) is Error.FENCED_LEADER_EPOCH
    assert log.end_offset == 1


def test_a_batch_over_the_limit_is_refused(bench: Any) -> None:
    log = bench.open(LogConfig(max_message_bytes=200))
    assert refused(bench.append, log, size_bytes=300) is Error.MESSAGE_TOO_LARGE
    assert log.end_offset == 0


def test_control_batches_of_clients_are_refused(bench: Any) -> None:
    assert refused(bench.append, bench.open(), control=True) is Error.INVALID_RECORD


@pytest.mark.parametrize(
    ("delta_ms", "is_taken"), [(0, True), (HOUR_MS, True), (HOUR_MS + 1, False), (-(10**11), True)]
)
def test_times_far_in_the_future_are_refused(bench: Any, delta_ms: int, is_taken: bool) -> None:
    log = bench.open()
    timestamps = [bench.clock.now_ms + delta_ms]
    if is_taken:
        bench.append(log, timestamps=timestamps)
    else:
        assert refused(bench.append, log, timestamps=timestamps) is Error.INVALID_TIMESTAMP


def test_times_far_in_the_past_are_refused_where_so_set(bench: Any) -> None:
    log = bench.open(LogConfig(timestamp_before_max_ms=1000))
    assert refused(bench.append, log, timestamps=[bench.clock.now_ms - 1001]) is Error.INVALID_TIMESTAMP
    bench.append(log, timestamps=[bench.clock.now_ms - 1000])


def test_a_batch_without_a_time_is_taken(bench: Any) -> None:
    bench.append(bench.open(LogConfig(timestamp_before_max_ms=1000)), timestamps=[-1])


def test_a_producer_may_not_say_that_the_log_gave_the_time(bench: Any) -> None:
    batch = bench.batch(log_append_time=bench.clock.now_ms)
    assert refused(bench.open().append_as_leader, batch, read_header(batch), 0, bench.clock.now_ms) is (
        Error.INVALID_TIMESTAMP
    )


def test_log_append_time(bench: Any) -> None:
    log = bench.open(LogConfig(message_timestamp_type="LogAppendTime"))
    appended = bench.append(log, 2, timestamps=[5, 6])
    assert appended.log_append_time_ms == bench.clock.now_ms
    content = log_bytes(log, 0, 1000)
    assert read_header(content).attributes & LOG_APPEND_TIME
    assert {record.timestamp for record in read_records(memoryview(content))} == {bench.clock.now_ms}


def test_a_retry_gets_its_old_offset_and_writes_nothing(bench: Any) -> None:
    log = bench.open()
    bench.append(log)
    first = bench.append(log, 2, producer_id=9, producer_epoch=0, base_sequence=0)
    size_bytes = log.size_bytes
    assert bench.append(log, 2, producer_id=9, producer_epoch=0, base_sequence=0) == (*tuple(first)[:3], True)
    assert (log.size_bytes, log.end_offset) == (size_bytes, 3)


def test_five_batches_are_known_again_after_a_restart(bench: Any) -> None:
    log = bench.open()
    for sequence in range(6):
        bench.append(log, producer_id=9, producer_epoch=0, base_sequence=sequence)
    log.close()
    for clean in (True, False):
        log = bench.open(clean=clean)
        for sequence in range(1, 6):
            appended = bench.append(log, producer_id=9, producer_epoch=0, base_sequence=sequence)
            assert (appended.base_offset, appended.duplicate) == (sequence, True)


def test_a_follower_takes_over_what_the_leader_wrote(bench: Any) -> None:
    leader = bench.open(SMALL)
    for number in range(20):
        bench.append(leader, 1 + number % 3, size_bytes=50, epoch=number // 5)
    content = b"".join(stored.content for stored in read_all(leader))
    leader.close()
    other = type(bench)()
    follower = other.open(SMALL)
    assert follower.append_as_follower(memoryview(content)) == leader.end_offset
    assert b"".join(stored.content for stored in read_all(follower)) == content
    assert follower.epochs.entries() == leader.epochs.entries()


def test_a_follower_refuses_what_does_not_follow(bench: Any) -> None:
    log = bench.open()
    good = bytes(bench.batch(base_offset=0, leader_epoch=1))
    log.append_as_follower(memoryview(good))
    assert refused(log.append_as_follower, memoryview(good)) is Error.UNKNOWN_SERVER_ERROR
    bad = bytearray(bench.batch(base_offset=1))
    bad[-1] ^= 1
    assert refused(log.append_as_follower, memoryview(bad)) is Error.CORRUPT_MESSAGE
    half = bytes(bench.batch(base_offset=1)) + good[:20]
    assert refused(log.append_as_follower, memoryview(half)) is Error.CORRUPT_MESSAGE
    assert log.end_offset == 1


def test_a_follower_keeps_the_holes_of_a_compacted_log(bench: Any) -> None:
    log = bench.open()
    content = b"".join(bytes(bench.batch([b"v"] * 2, base_offset=offset)) for offset in (0, 10, 20))
    assert log.append_as_follower(memoryview(content)) == 22
    for offset, base_offset in [(1, 0), (2, 10), (9, 10), (11, 10), (12, 20)]:
        assert read_header(log_bytes(log, offset, 1)).base_offset == base_offset


def test_markers_and_aborted_transactions(bench: Any) -> None:
    log = bench.open()
    options = {"producer_id": 4, "producer_epoch": 1, "transactional": True}
    for round_number in range(2):
        bench.append(log, 2, base_sequence=2 * round_number, **options)
        assert log.producers.first_unstable_offset == 3 * round_number
        kind = ControlType.ABORT if round_number else ControlType.COMMIT
        log.append_marker(
            kind, producer_id=4, producer_epoch=1, coordinator_epoch=0, leader_epoch=0, now_ms=bench.clock.now_ms
        )
        log.producers.high_watermark_moved(log.end_offset)
        assert log.producers.first_unstable_offset == ALL_STABLE
    assert read_header(log_bytes(log, 5, 1)).attributes & CONTROL
    assert [entry[:3] for entry in log.aborted_transactions(0, 6)] == [(4, 3, 5)]
    assert log.aborted_transactions(0, 3) == []
    log.close()
    for clean in (True, False):
        log = bench.open(clean=clean)
        assert [entry[:3] for entry in log.aborted_transactions(0, 6)] == [(4, 3, 5)]


# -- rolling


def test_it_rolls_by_size(bench: Any) -> None:
    log = bench.open(LogConfig(segment_bytes=1000))
    for _ in range(30):
        bench.append(log, size_bytes=100)
    sizes = [bench.disk.file_size(f"{bench.folder}/{name}") for name in bench.files() if name.endswith(".log")]
    assert len(sizes) > 3 and max(sizes) <= 1000


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(bench: Any) -> None:
    log = bench.open(LogConfig(segment_bytes=200))
    for size_bytes in (10, 500, 500, 10):
        bench.append(log, size_bytes=size_bytes)
    assert len([name for name in bench.files() if name.endswith(".log")]) == 4


def test_it_rolls_by_time(bench: Any) -> None:
    log = bench.open(LogConfig(segment_ms=1000))
    bench.append(log)
    assert not log.roll_if_due(bench.clock.now_ms + 1000)
    assert log.roll_if_due(bench.clock.now_ms + 1001)
    assert not log.roll_if_due(bench.clock.now_ms + 10_000)  # an empty segment stays
    bench.append(log)
    bench.clock.now_ms += 1001
    bench.append(log)
    assert [name for name in bench.files() if name.endswith(".log")] == [f"{n:020d}.log" for n in (0, 1, 2)]


def test_it_rolls_when_an_index_is_full(bench: Any) -> None:
    log = bench.open(LogConfig(index_interval_bytes=1, index_size_bytes_max=60))
    for _ in range(30):
        bench.clock.now_ms += 1
        bench.append(log, size_bytes=30)
    assert len([name for name in bench.files() if name.endswith(".log")]) > 3
    assert all(bench.disk.file_size(f"{bench.folder}/{name}") <= 60 for name in bench.files() if "index" in name)


def test_other_settings_count_from_now_on(bench: Any) -> None:
    log = bench.open()
    bench.append(log)
    log.use_config(replace(log.config, max_message_bytes=50))
    assert refused(bench.append, log) is Error.MESSAGE_TOO_LARGE


# -- reading


def test_offsets_outside_the_log_are_out_of_range(bench: Any) -> None:
    log = bench.open()
    bench.append(log, 5)
    log.advance_start_offset(2)
    for offset in (-1, 1, 6):
        assert refused(log.read, offset, 100, end_offset=5) is Error.OFFSET_OUT_OF_RANGE
    assert log.read(5, 100, end_offset=5).size_bytes == 0
    assert log.read(4, 100, end_offset=3).size_bytes == 0


def test_a_reader_below_the_high_watermark_sees_whole_batches_below_it(bench: Any) -> None:
    log = bench.open()
    for _ in range(4):
        bench.append(log, 3)
    one = len(log_bytes(log, 0, 1))
    for end_offset, batches in [(0, 0), (2, 0), (3, 1), (5, 1), (6, 2), (12, 4)]:
        assert log.read(0, 10_000, end_offset=end_offset).size_bytes == batches * one


def test_at_least_one_batch_unless_told_otherwise(bench: Any) -> None:
    log = bench.open()
    bench.append(log, size_bytes=500)
    assert log.read(0, 10, end_offset=1).size_bytes > 500
    assert log.read(0, 10, end_offset=1, at_least_one=False).size_bytes == 0


def test_what_is_in_memory_is_warm_and_the_rest_is_not(bench: Any) -> None:
    log = bench.open()
    for _ in range(2000):
        bench.append(log)
    assert all(log.is_warm(offset, 100) for offset in (0, 1000, 1999, 2000))
    bench.disk.evict(log.segments[0].log_path)
    assert log.is_warm(1999, 100) and log.is_warm(2000, 100)
    assert not log.is_warm(0, 100) and not log.is_warm(700, 100)
    assert read_header(log_bytes(log, 700, 1)).base_offset == 700


# -- flushing and failing


def test_flush_by_messages_and_by_time(bench: Any) -> None:
    log = bench.open(LogConfig(flush_messages=3, flush_ms=1000))
    assert not log.needs_flush(bench.clock.now_ms + 5000)
    bench.append(log, 2)
    assert not log.needs_flush(bench.clock.now_ms + 999)
    assert log.needs_flush(bench.clock.now_ms + 1000)
    bench.append(log)
    assert log.needs_flush(bench.clock.now_ms)
    log.flush()
    assert log.recovery_point == log.end_offset == 3
    assert not log.needs_flush(bench.clock.now_ms + 5000)


def test_closed_segments_ask_to_be_flushed(bench: Any) -> None:
    log = bench.open()
    bench.append(log)
    log.roll(bench.clock.now_ms)
    bench.append(log)
    assert log.needs_early_flush
    assert not log.needs_flush(bench.clock.now_ms)
    plan = log.begin_flush(closed_only=True)
    assert plan.file is None  # the active segment is left alone
    assert not log.needs_early_flush
    plan.run()
    log.complete_flush(plan)
    assert (log.recovery_point, log.end_offset) == (1, 2)
    assert not log.needs_early_flush


def test_a_roll_finds_the_name_of_the_first_segment_synced_already(bench: Any) -> None:
    log = bench.open(LogConfig(segment_bytes=1000))
    bench.append(log)
    assert not log.needs_early_flush
    while not log.needs_early_flush:
        bench.append(log)
    assert log.size_bytes < 700
    plan = log.begin_flush(closed_only=True)
    plan.run()
    log.complete_flush(plan)
    assert not log.needs_early_flush
    bench.disk.fail_sync()
    log.roll(bench.clock.now_ms)


def test_what_is_appended_during_a_flush_is_not_covered_by_it(bench: Any) -> None:
    log = bench.open()
    bench.append(log)
    plan = log.begin_flush()
    bench.append(log, epoch=1)
    log.roll(bench.clock.now_ms)
    plan.run()
    log.complete_flush(plan)
    assert log.recovery_point == 1
    log.flush()
    bench.disk.crash(lost="all")
    assert bench.open(clean=False, recovery_point=2).end_offset == 2


def test_a_flush_that_fails_is_never_tried_again(bench: Any) -> None:
    log = bench.open()
    bench.append(log)
    bench.disk.fail_sync()
    assert refused(log.flush) is Error.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0 and log.failure is not None
    assert refused(bench.append, log) is Error.KAFKA_STORAGE_ERROR
    log.close()
    assert log.recovery_point == 0


@pytest.mark.parametrize("written_bytes", [0, 1, 40, 70])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_changes_nothing(bench: Any, written_bytes: int, code: int) -> None:
    log = bench.open()
    bench.append(log, producer_id=1, producer_epoch=0, base_sequence=0)
    bench.disk.fail_when(lambda operation: operation.kind == "write", OSError(code, "no"), written_bytes=written_bytes)
    retry = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 1}
    assert refused(bench.append, log, epoch=2, **retry) is Error.KAFKA_STORAGE_ERROR
    assert (log.end_offset, log.epochs.latest, log.failure) == (1, 0, None)
    assert bench.disk.file_size(f"{bench.folder}/{0:020d}.log") == log.size_bytes
    assert bench.append(log, epoch=2, **retry) == (1, 1, -1, False)
    assert [stored.base_offset for stored in read_all(log)] == [0, 1]


@pytest.mark.parametrize(("code", "is_over"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_disk_that_fails_again_and_again_is_not_waited_for(bench: Any, code: int, is_over: bool) -> None:
    log = bench.open()
    for _ in range(3):
        bench.disk.fail_when(
            lambda operation: operation.kind == "write", OSError(code, "no"), times=FAILED_WRITES_MAX - 1
        )
        for _ in range(FAILED_WRITES_MAX - 1):
            assert refused(bench.append, log) is Error.KAFKA_STORAGE_ERROR
        bench.append(log)
    bench.disk.fail_when(lambda operation: operation.kind == "write", OSError(code, "no"), times=FAILED_WRITES_MAX)
    for _ in range(FAILED_WRITES_MAX):
        assert refused(bench.append, log) is Error.KAFKA_STORAGE_ERROR
    assert (log.failure is not None) is is_over


def test_a_file_that_cannot_be_put_back_ends_the_log(bench: Any) -> None:
    log = bench.open()
    bench.append(log)
    for kind in ("write", "truncate"):
        bench.disk.fail_when(lambda operation, kind=kind: operation.kind == kind, OSError(errno.EIO, "no"))
    assert refused(bench.append, log) is Error.KAFKA_STORAGE_ERROR
    assert refused(bench.append, log) is Error.KAFKA_STORAGE_ERROR
    assert log.failure is not None


@pytest.mark.parametrize("failing", range(8))
def test_a_roll_that_fails_can_be_tried_again(bench: Any, failing: int) -> None:
    log = bench.open(LogConfig(segment_bytes=200))
    bench.append(log, size_bytes=100)
    number = bench.disk.operations_count + 1 + failing
    bench.disk.fail_at(number, OSError(errno.ENOSPC, "full"))
    try:
        bench.append(log, size_bytes=100)
    except ApiError as refusal:
        assert refusal.error is Error.KAFKA_STORAGE_ERROR
        assert log.end_offset == 1
        bench.append(log, size_bytes=100)
    bench.disk.heal()
    bench.append(log, size_bytes=100)
    log.close()
    again = bench.open()
    assert [stored.base_offset for stored in read_all(again)] == [0, 1, 2]


def test_a_full_disk_heals_by_itself(bench: Any) -> None:
    log = bench.open(SMALL)
    bench.disk.set_capacity(3000)
    with pytest.raises(ApiError):
        for _ in range(1000):
            bench.append(log, size_bytes=60)
    count = log.end_offset
    assert refused(bench.append, log, size_bytes=60) is Error.KAFKA_STORAGE_ERROR
    bench.disk.set_capacity(1 << 20)
    for _ in range(20):
        bench.append(log, size_bytes=60)
    assert len(read_all(log)) == count + 20


def test_a_folder_of_another_topic_is_refused(bench: Any) -> None:
    bench.open().close()
    content = bench.disk.open(f"{bench.folder}/partition.metadata")
    content.write([b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"], 0)
    assert refused(bench.open) is Error.INCONSISTENT_TOPIC_ID


def read_in_portions(log: PartitionLog, max_bytes: int) -> bytes:
    """Everything, as a reader gets it that goes on where the last portion ended."""
    content, offset = b"", log.start_offset
    while offset < log.end_offset:
        found = log.read(offset, max_bytes, end_offset=log.end_offset)
        portion = memoryview(found.file.read(found.size_bytes, found.position))
        batches = list(each_batch(portion))
        assert batches[0][0].base_offset == offset and sum(len(batch) for _, batch in batches) == len(portion)
        offset = batches[-1][0].next_offset
        content += portion
    return content


@pytest.mark.parametrize("max_bytes", [1, 200, 333, 1000])
def test_going_on_where_the_last_portion_ended(bench: Any, max_bytes: int) -> None:
    log = bench.open(LogConfig(index_interval_bytes=200))
    for number in range(60):
        bench.append(log, 1 + number % 3, size_bytes=1 + number % 50)
    log.close()
    log = bench.open(LogConfig(index_interval_bytes=200))  # now nothing is known by heart
    whole = bytes(log.segments[0].open_file().read(log.size_bytes, 0))
    assert read_in_portions(log, max_bytes) == read_in_portions(log, max_bytes) == whole
    log.truncate_to(51)
    for number in range(30):
        bench.append(log, 2, size_bytes=100 - number)
    log.close()
    log = bench.open(LogConfig(index_interval_bytes=200))
    whole = bytes(log.segments[0].open_file().read(log.size_bytes, 0))
    assert read_in_portions(log, max_bytes) == read_in_portions(log, max_bytes) == whole
