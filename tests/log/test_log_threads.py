"""What the event loop does to a log while another thread is in the middle of reading it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import ApiError, Error
from penstock.log import loading
from penstock.log.config import LogConfig
from penstock.log.partition_log import PartitionLog
from penstock.wire.batch import each_batch

INDEXED = LogConfig(index_interval_bytes=100)
SMALL = LogConfig(segment_bytes=400, retention_bytes=2000)


def offsets_in(log: PartitionLog) -> list[int]:
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        at = log.read(offset, 1 << 20, end_offset=log.end_offset)
        content = memoryview(bytearray(at.file.read(at.size_bytes, at.position)))
        found += [header.base_offset for header, _ in each_batch(content)]
        offset = found[-1] + 1
    return found


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen after the first header that a rebuild of indexes has looked at."""
    walk = loading.walk_headers

    def interrupted(*args: Any) -> Iterator[Any]:
        headers = walk(*args)
        yield next(headers)
        monkeypatch.setattr(loading, "walk_headers", walk)
        happens()
        yield from headers

    monkeypatch.setattr(loading, "walk_headers", interrupted)


def test_an_append_while_the_index_of_its_segment_is_built_anew(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench.open(INDEXED)
    for _ in range(40):
        bench.append(log)
    log.close()
    index = f"{bench.folder}/{0:020d}.index"
    for at in range(0, bench.disk.file_size(index) - 8, 8):
        bench.disk.corrupt(index, at + 7, 0x40)  # every entry but the last
    log = bench.open(INDEXED)
    meanwhile(monkeypatch, lambda: bench.append(log))
    log.read(20, 100, end_offset=log.end_offset)
    bench.append(log)
    assert offsets_in(log) == list(range(42))
    log.close()
    assert offsets_in(bench.open(INDEXED)) == list(range(42))


def test_an_append_while_a_search_by_time_builds_indexes_anew(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench.open(SMALL)
    for _ in range(10):
        bench.append(log)
    log.close()
    bench.disk.open(f"{bench.folder}/{0:020d}.timeindex").truncate(7)
    log = bench.open(SMALL)
    active = log.segments[-1]
    take_note = loading.note_headers

    def interrupted(segment: Any, *args: Any) -> None:
        if segment.base_offset == active.base_offset:
            meanwhile(monkeypatch, lambda: bench.append(log))
        take_note(segment, *args)

    monkeypatch.setattr("penstock.log.loading.note_headers", interrupted)
    log.offset_for_timestamp(bench.clock.now_ms, end_offset=log.end_offset)
    bench.append(log)
    assert offsets_in(log) == list(range(12))


def test_retention_between_the_check_of_an_offset_and_the_search_for_it(bench: Any) -> None:
    log = bench.open(SMALL)
    for _ in range(60):
        bench.append(log, size_bytes=50)

    class Interrupted(int):
        def __gt__(self, other: int) -> bool:
            assert log.apply_retention(bench.clock.now_ms, high_watermark=log.end_offset)
            return int(self) > other

    with pytest.raises(ApiError) as refused:
        log.read(Interrupted(1), 1000, end_offset=log.end_offset)
    assert refused.value.error is Error.OFFSET_OUT_OF_RANGE
