"""Finding records by time, against a look at every record."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.log.config import LogConfig
from penstock.log.partition_log import PartitionLog
from penstock.testing.log_machine import read_all
from penstock.wire.batch import read_header
from penstock.wire.control import ControlType
from penstock.wire.records import Record, read_records

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, timestamp_after_max_ms=2**62)


def records_of(log: PartitionLog) -> list[Record]:
    found = [record for stored in read_all(log) for record in read_records(memoryview(stored.content))]
    return [record for record in found if record.offset >= log.start_offset]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=40),
    st.integers(0, 160),
    st.integers(0, 160),
    st.integers(0, 2),
)
def test_it_finds_what_a_look_at_every_record_finds(
    bench: Any, times: list[list[int]], start: int, end: int, restart: int
) -> None:
    bench = type(bench)()
    log = bench.open(CONFIG)
    for number, timestamps in enumerate(times):
        bench.append(log, len(timestamps), size_bytes=20, timestamps=timestamps, epoch=number // 5)
    log.advance_start_offset(start % log.end_offset)
    start_offset = log.start_offset
    if restart:
        log.close()
        log = bench.open(CONFIG, clean=restart == 1, log_start_offset=start_offset)
    end_offset = start_offset + end % (log.end_offset - start_offset + 1)
    records = records_of(log)
    for timestamp in (0, 1, 17, 30, 59, 60, 61):
        first = next((record for record in records if record.timestamp >= timestamp), None)
        found = log.offset_for_timestamp(timestamp, end_offset=end_offset)
        if first is None or first.offset >= end_offset:
            assert found is None
        else:
            assert found == (first.timestamp, first.offset, log.epochs.epoch_of(first.offset))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=40), st.booleans())
def test_the_newest_record(bench: Any, times: list[list[int]], restart: bool) -> None:
    bench = type(bench)()
    log = bench.open(CONFIG)
    for timestamps in times:
        bench.append(log, len(timestamps), size_bytes=20, timestamps=timestamps)
    if restart:
        log.close()
        log = bench.open(CONFIG)
    records = records_of(log)
    newest = max(record.timestamp for record in records)
    first = next(record for record in records if record.timestamp == newest)
    assert log.max_timestamp(end_offset=log.end_offset) == (newest, first.offset, 0)
    assert log.max_timestamp(end_offset=first.offset + 1) == (newest, first.offset, 0)
    assert log.max_timestamp(end_offset=first.offset) is None


def test_an_empty_log_has_no_times(bench: Any) -> None:
    log = bench.open()
    assert log.offset_for_timestamp(0, end_offset=0) is None
    assert log.max_timestamp(end_offset=0) is None


def test_markers_are_found_as_well(bench: Any) -> None:
    log = bench.open()
    bench.append(log, timestamps=[5], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_marker(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, leader_epoch=0, now_ms=10
    )
    assert log.offset_for_timestamp(6, end_offset=2) == log.max_timestamp(end_offset=2) == (10, 1, 0)
    assert log.offset_for_timestamp(6, end_offset=1) is None and log.max_timestamp(end_offset=1) is None


def test_a_batch_whose_inside_lies_is_found_by_its_header(bench: Any) -> None:
    log = bench.open()
    batch = bytes(bench.batch([b"x"], [9]))
    lying = memoryview(bytearray(batch[:-9] + b"\xff" * 9))
    log.append_as_leader(lying, read_header(lying), 0, bench.clock.now_ms)
    assert log.offset_for_timestamp(5, end_offset=1) == (9, 0, 0)
