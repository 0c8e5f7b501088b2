"""Checking what nobody reads."""

from __future__ import annotations

from typing import Any

from penstock.log.config import LogConfig
from penstock.log.scrub import NOTHING_LEFT, Scrub
from penstock.wire.batch import MAGIC_OFFSET

SMALL = LogConfig(segment_bytes=400)


def filled(bench: Any, count: int = 30) -> Any:
    log = bench.open(SMALL)
    for _ in range(count):
        bench.append(log)
    log.close()
    return bench.open(SMALL)


def test_what_this_process_wrote_needs_no_scrub(bench: Any) -> None:
    log = bench.open(SMALL)
    bench.append(log, 20)
    assert not Scrub(log).has_work
    assert Scrub(log).step(1000) == NOTHING_LEFT


def test_a_scrub_sees_everything_once_and_little_by_little(bench: Any) -> None:
    log = filled(bench)
    scrub = Scrub(log)
    sizes = []
    while scrub.has_work:
        step = scrub.step(150)
        assert step.problem is None
        sizes.append(step.size_bytes)
    assert sum(sizes) == log.size_bytes
    assert len(sizes) > len(log.segments)
    assert scrub.step(150) == NOTHING_LEFT
    assert not log.read(0, 1000, end_offset=log.end_offset).unverified


def test_damage_is_found_and_told_once(bench: Any) -> None:
    log = filled(bench)
    victim = log.segments[2]
    bench.disk.corrupt(victim.log_path, 70)
    scrub = Scrub(log)
    problems = []
    while scrub.has_work:
        problem = scrub.step(1 << 20).problem
        if problem is not None:
            problems.append(problem)
    (problem,) = problems
    assert victim.log_path in problem
    assert log.read(victim.base_offset, 1000, end_offset=log.end_offset).unverified


def test_a_header_that_is_damaged_is_told_once_too(bench: Any) -> None:
    log = bench.open(LogConfig(index_interval_bytes=500))
    for _ in range(30):
        bench.append(log)
    log.close()
    log = bench.open(LogConfig(index_interval_bytes=500))
    (segment,) = log.segments
    damaged_at = segment.locate(3)
    bench.disk.corrupt(segment.log_path, damaged_at + MAGIC_OFFSET)
    scrub = Scrub(log)
    problem = scrub.step(damaged_at + 30).problem
    assert problem is not None and segment.log_path in problem
    assert not scrub.has_work


def test_a_disk_that_cannot_read_is_told_once_and_does_not_stop_the_others(bench: Any) -> None:
    log = filled(bench)
    victim = log.segments[2]
    bench.disk.remove(victim.log_path)
    scrub = Scrub(log)
    problems = []
    while scrub.has_work:
        problems.append(scrub.step(1 << 20).problem)
    assert len(problems) == len(log.segments)
    (problem,) = filter(None, problems)
    assert victim.log_path in problem
