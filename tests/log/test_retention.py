from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ApiError, Error
from penstock.log.config import HOUR_MS, LogConfig
from penstock.log.partition_log import PartitionLog
from penstock.testing.log_machine import read_all


def filled(bench: Any, config: LogConfig, segments: int = 5) -> PartitionLog:
    """One segment of two batches for every hour."""
    log: PartitionLog = bench.open(config)
    for hour in range(segments):
        if hour:
            log.roll(bench.clock.now_ms)
        for _ in range(2):
            bench.append(log, 5, size_bytes=50)
        bench.clock.now_ms += HOUR_MS
    return log


def retain(bench: Any, log: PartitionLog, high_watermark: int | None = None) -> list[tuple[int, str]]:
    deleted = log.apply_retention(
        bench.clock.now_ms, high_watermark=log.end_offset if high_watermark is None else high_watermark
    )
    log.remove_files(deleted)
    assert log.size_bytes == sum(
        bench.disk.file_size(f"{bench.folder}/{name}") for name in bench.files() if name.endswith(".log")
    )
    return [(segment.base_offset, segment.reason) for segment in deleted]


def test_nothing_is_due(bench: Any) -> None:
    assert retain(bench, filled(bench, LogConfig())) == []


def test_by_time(bench: Any) -> None:
    log = filled(bench, LogConfig(retention_ms=3 * HOUR_MS))
    assert retain(bench, log) == [(0, "time"), (10, "time")]
    assert (log.start_offset, log.end_offset) == (20, 50)
    assert read_all(log)[0].base_offset == 20
    assert not [name for name in bench.files() if name.endswith(".deleted") or name.startswith(f"{10:020d}")]


def test_by_time_the_last_segment_too(bench: Any) -> None:
    log = filled(bench, LogConfig(retention_ms=HOUR_MS // 2))
    assert [base for base, _ in retain(bench, log)] == [0, 10, 20, 30, 40]
    assert (log.start_offset, log.end_offset, log.size_bytes) == (50, 50, 0)
    assert retain(bench, log) == []
    assert bench.append(log).base_offset == 50
    log.close()
    assert (bench.open().start_offset, bench.open().end_offset) == (50, 51)


def test_by_size(bench: Any) -> None:
    log = filled(bench, LogConfig(retention_ms=-1))
    one = log.size_bytes // 5
    log.use_config(LogConfig(retention_ms=-1, retention_bytes=3 * one))
    assert retain(bench, log) == [(0, "size"), (10, "size")]
    log.use_config(LogConfig(retention_ms=-1, retention_bytes=3 * one - 1))
    assert retain(bench, log) == []


def test_nothing_above_the_high_watermark(bench: Any) -> None:
    log = filled(bench, LogConfig(retention_ms=0))
    assert retain(bench, log, high_watermark=25) == [(0, "time"), (10, "time")]


def test_deleted_records_take_their_segments_with_them(bench: Any) -> None:
    log = filled(bench, LogConfig(retention_ms=-1, cleanup_policy=frozenset({"compact"})))
    assert log.advance_start_offset(23)
    assert not log.advance_start_offset(22)
    assert retain(bench, log) == [(0, "start offset"), (10, "start offset")]
    assert log.start_offset == 23
    with pytest.raises(ApiError) as caught:
        log.advance_start_offset(51)
    assert caught.value.error is Error.OFFSET_OUT_OF_RANGE


def test_a_compacted_log_is_not_retained_by_time_or_size(bench: Any) -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"}))
    assert retain(bench, filled(bench, config)) == []


def test_a_time_in_the_future_does_not_keep_a_segment_for_ever(bench: Any) -> None:
    log = bench.open(LogConfig(retention_ms=HOUR_MS, timestamp_after_max_ms=2**62))
    bench.append(log, timestamps=[bench.clock.now_ms + 10**12])
    bench.clock.now_ms += HOUR_MS
    assert retain(bench, log) == []
    bench.clock.now_ms += 1
    assert retain(bench, log) == [(0, "time")]


def test_a_segment_without_times_is_as_old_as_its_file(bench: Any) -> None:
    log = bench.open(LogConfig(retention_ms=HOUR_MS))
    bench.append(log, timestamps=[-1])
    bench.clock.now_ms += HOUR_MS + 1
    assert retain(bench, log) == [(0, "time")]


def test_a_reader_may_finish_what_it_began(bench: Any) -> None:
    log = filled(bench, LogConfig(retention_ms=0))
    found = log.read(0, 10_000, end_offset=50)
    before = found.file.read(found.size_bytes, found.position)
    retain(bench, log)
    assert found.file.read(found.size_bytes, found.position) == before


def test_the_time_of_closed_segments_is_known_after_a_restart(bench: Any) -> None:
    filled(bench, LogConfig()).close()
    log = bench.open(LogConfig(retention_ms=3 * HOUR_MS))
    assert retain(bench, log) == [(0, "time"), (10, "time")]
    assert log.epochs.entries() == [(0, 20)]


def test_a_damaged_time_index_does_not_keep_segments_for_ever(bench: Any) -> None:
    filled(bench, LogConfig()).close()
    bench.disk.open(f"{bench.folder}/{0:020d}.timeindex").truncate(7)
    log = bench.open(LogConfig(retention_ms=3 * HOUR_MS))
    assert retain(bench, log) == [(0, "time"), (10, "time")]
