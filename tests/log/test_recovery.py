"""What is found after an unclean stop, and what is rebuilt when a file is missing or damaged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.log.config import LogConfig
from penstock.log.partition_log import PartitionLog
from penstock.log.snapshots import snapshot_path
from penstock.testing.log_machine import read_all
from penstock.wire.batch import LOG_OVERHEAD
from penstock.wire.control import ControlType

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)
FIRST = f"{0:020d}"


def filled(bench: Any, batches: int = 30, *, close: bool = True) -> PartitionLog:
    log: PartitionLog = bench.open(CONFIG)
    for number in range(batches):
        producer = {"producer_id": number % 3, "producer_epoch": 0, "base_sequence": number // 3 * 2}
        bench.append(log, 2, size_bytes=30, epoch=number // 10, **producer)
    if close:
        log.close()
    return log


def state(log: PartitionLog) -> tuple[Any, ...]:
    return (
        log.start_offset,
        log.end_offset,
        [stored.content for stored in read_all(log)],
        log.epochs.entries(),
        sorted(repr(producer) for producer in log.producers),
    )


def change_file(bench: Any, name: str, content: bytes | None) -> None:
    path = f"{bench.folder}/{name}"
    if content is None:
        bench.disk.remove(path)
    else:
        file = bench.disk.open(path)
        file.truncate(0)
        file.write([content], 0)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_comes_back_as_it_was(bench: Any, clean: bool) -> None:
    before = state(filled(bench))
    assert state(bench.open(CONFIG, clean=clean)) == before


def test_a_clean_open_checks_nothing_and_an_unclean_one_checks_from_the_recovery_point(bench: Any) -> None:
    log = filled(bench)
    assert bench.open(CONFIG).recovery.checked_bytes == 0
    assert bench.open(CONFIG, clean=False).recovery.checked_bytes == log.size_bytes
    report = bench.open(CONFIG, clean=False, recovery_point=log.end_offset - 2).recovery
    assert 0 < report.checked_bytes < 200
    assert report.problem is None


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "content", [None, b"", b"\0" * 4096, b"\1" * 7, b"\7" * 48], ids=lambda content: str(content)[:8]
)
@pytest.mark.parametrize("clean", [True, False])
def test_indexes_are_rebuilt(bench: Any, suffix: str, content: bytes | None, clean: bool) -> None:
    before = state(filled(bench))
    for name in bench.files():
        if name.endswith(suffix):
            change_file(bench, name, content)
    log = bench.open(CONFIG, clean=clean)
    assert state(log) == before
    bench.append(log, 2, size_bytes=30)
    log.close()
    assert bench.open(CONFIG).end_offset == 62


@pytest.mark.parametrize("content", [None, b"", b"0\n", b"garbage", b"0\n0\n"], ids=repr)
@pytest.mark.parametrize("clean", [True, False])
def test_epochs_are_rebuilt(bench: Any, content: bytes | None, clean: bool) -> None:
    before = state(filled(bench))
    change_file(bench, "leader-epoch-checkpoint", content)
    recovery_point = 0 if clean else before[1]
    assert state(bench.open(CONFIG, clean=clean, recovery_point=recovery_point)) == before


@pytest.mark.parametrize("content", [None, b"", b"\0" * 30, b"garbage"], ids=repr)
@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_rebuilt(bench: Any, content: bytes | None, clean: bool) -> None:
    before = state(filled(bench))
    for name in bench.files():
        if name.endswith(".snapshot"):
            change_file(bench, name, content)
    recovery_point = 0 if clean else before[1]
    assert state(bench.open(CONFIG, clean=clean, recovery_point=recovery_point)) == before


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_torn_tail_is_cut_at_a_batch(bench: Any, data: st.DataObject) -> None:
    from_bench = type(bench)()
    log = filled(from_bench, close=False)
    whole = read_all(log)
    name = max(name for name in from_bench.files() if name.endswith(".log"))
    path = f"{from_bench.folder}/{name}"
    size = from_bench.disk.file_size(path)
    kept = data.draw(st.integers(0, size - 1))
    from_bench.disk.open(path).truncate(kept)
    from_bench.disk.kill()
    again = from_bench.open(CONFIG, clean=False)
    found = read_all(again)
    assert found == whole[: len(found)]
    file_bytes = sum(len(stored.content) for stored in found) - (log.size_bytes - size)
    assert again.recovery.cut_bytes == kept - file_bytes < 200
    assert (again.recovery.problem is None) == (kept == file_bytes)


def test_a_bad_batch_cuts_all_that_follows(bench: Any) -> None:
    log = filled(bench, close=False)
    batches = read_all(log)
    bench.disk.corrupt(f"{bench.folder}/{FIRST}.log", len(batches[0].content) + 70)
    bench.disk.kill()
    again = bench.open(CONFIG, clean=False)
    assert [stored.content for stored in read_all(again)] == [batches[0].content]
    report = again.recovery
    assert report.cut_at_offset == 2
    assert report.cut_bytes == log.size_bytes - len(batches[0].content)
    assert len(report.removed_segments) > 1
    assert "checksum" in str(report.problem)
    assert again.epochs.entries() == [(0, 0)]
    assert [producer.producer_id for producer in again.producers] == [0]


def test_rot_below_the_recovery_point_is_not_cut_and_not_served(bench: Any) -> None:
    log = filled(bench)
    batches = read_all(bench.open(CONFIG))
    bench.disk.corrupt(f"{bench.folder}/{FIRST}.log", len(batches[0].content) + 70)
    again = bench.open(CONFIG, clean=False, recovery_point=log.end_offset)
    assert again.end_offset == log.end_offset and again.recovery.cut_bytes == 0
    found = again.read(0, 400, end_offset=again.end_offset)
    assert found.unverified
    problem = found.verify()
    assert problem is not None and f"at {len(batches[0].content)}" in problem
    assert again.read(0, 400, end_offset=again.end_offset).unverified


def test_a_range_is_checked_once_and_own_appends_never(bench: Any) -> None:
    filled(bench)
    log = bench.open(CONFIG)
    found = log.read(0, 400, end_offset=log.end_offset)
    assert found.unverified and found.verify() is None
    assert not log.read(0, 400, end_offset=log.end_offset).unverified
    bench.append(log)
    assert not log.read(log.end_offset - 1, 400, end_offset=log.end_offset).unverified


def test_a_header_that_is_nonsense_is_a_storage_error_for_readers(bench: Any) -> None:
    filled(bench)
    log = bench.open(CONFIG)
    bench.disk.corrupt(f"{bench.folder}/{FIRST}.log", 16, 0xFF)
    with pytest.raises(ApiError) as caught:
        log.read(0, 100, end_offset=log.end_offset)
    assert caught.value.error is Error.KAFKA_STORAGE_ERROR


def test_a_segment_that_is_missing_in_the_middle_ends_the_log_after_an_unclean_stop(bench: Any) -> None:
    log = filled(bench)
    bases = [name for name in bench.files() if name.endswith(".log")]
    bench.disk.remove(f"{bench.folder}/{bases[1]}")
    again = bench.open(CONFIG, clean=False)
    assert again.end_offset == int(bases[1][:20]) < log.end_offset
    assert again.recovery.removed_segments == [int(base[:20]) for base in bases[2:]]


def test_a_log_start_offset_beyond_the_end_begins_a_new_log(bench: Any) -> None:
    filled(bench)
    log = bench.open(CONFIG, clean=False, log_start_offset=500)
    assert (log.start_offset, log.end_offset, len(log.producers)) == (500, 500, 0)
    assert bench.append(log).base_offset == 500


def test_the_log_start_offset_is_taken_over(bench: Any) -> None:
    filled(bench)
    log = bench.open(CONFIG, log_start_offset=7)
    assert log.start_offset == 7
    assert read_all(log)[0].base_offset == 6


def test_leftovers_are_removed(bench: Any) -> None:
    filled(bench)
    leftovers = [f"{FIRST}.log.deleted", f"{7:020d}.index", f"{7:020d}.log.cleaned", "leader-epoch-checkpoint.tmp"]
    for name in leftovers:
        bench.disk.open(f"{bench.folder}/{name}", create=True)
    bench.open(CONFIG)
    assert not set(leftovers) & set(bench.files())


def test_stale_epochs_of_a_shorter_log_are_dropped(bench: Any) -> None:
    log = filled(bench, close=False)
    log.flush()
    path = f"{bench.folder}/{max(name for name in bench.files() if name.endswith('.log'))}"
    bench.disk.open(path).truncate(LOG_OVERHEAD)
    again = bench.open(CONFIG, clean=False, recovery_point=log.end_offset)
    assert again.recovery.cut_below_recovery_point
    assert all(offset < again.end_offset for _, offset in again.epochs.entries())


def test_producers_are_rebuilt_with_a_damaged_index_from_a_snapshot_within_a_segment(bench: Any) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=100)
    log = bench.open(config)
    for sequence in range(0, 30, 2):
        bench.append(log, 2, producer_id=7, producer_epoch=0, base_sequence=sequence)
        if sequence == 10:
            log.close()  # leaves a snapshot at offset 12
            log = bench.open(config)
    expected = list(log.producers)
    log.roll(bench.clock.now_ms)
    log.close()
    bench.disk.remove(snapshot_path(bench.folder, 30))
    index = f"{bench.folder}/{FIRST}.index"
    for at in range(7, bench.disk.file_size(index), 8):
        bench.disk.corrupt(index, at, 0x40)
    assert list(bench.open(config).producers) == expected


@pytest.mark.parametrize("clean", [True, False])
def test_a_producer_of_old_records_is_known_after_a_restart_and_a_silent_one_is_not(bench: Any, clean: bool) -> None:
    config = LogConfig(producer_id_expiration_ms=1000)
    log = bench.open(config)
    bench.append(log, producer_id=1, producer_epoch=0, base_sequence=0)
    log.roll(bench.clock.now_ms)
    log.flush()
    bench.clock.now_ms += 1000
    bench.append(log, timestamps=[7], producer_id=2, producer_epoch=0, base_sequence=0)
    if clean:
        log.close()
    again = bench.open(config, clean=clean)
    assert [state.producer_id for state in again.producers] == [2]
    assert bench.append(again, timestamps=[7], producer_id=2, producer_epoch=0, base_sequence=0).duplicate


def with_transactions(bench: Any) -> PartitionLog:
    """Three transactions over several segments: the first and the last of them are aborted, a fourth stays open."""
    log: PartitionLog = bench.open(CONFIG)
    for producer in range(4):
        for sequence in range(4 + 4 * producer):
            bench.append(
                log, size_bytes=50, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
            )
        if producer < 3:
            kind = ControlType.COMMIT if producer == 1 else ControlType.ABORT
            log.append_marker(
                kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, leader_epoch=0, now_ms=0
            )
    log.close()
    return log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffixes", [(".index",), (".index", ".timeindex", ".txnindex"), (".snapshot", ".timeindex")])
def test_aborted_transactions_are_found_without_the_indexes(bench: Any, clean: bool, suffixes: tuple[str, ...]) -> None:
    log = with_transactions(bench)
    assert len(log.segments) > 3
    aborted = log.aborted_transactions(0, log.end_offset)
    assert aborted is not None and [entry.producer_id for entry in aborted] == [0, 2]
    first_unstable = log.producers.first_open_offset
    for name in [name for name in bench.files() if name.endswith(suffixes)]:
        bench.disk.remove(f"{bench.folder}/{name}")
    for _ in range(2):
        log = bench.open(CONFIG, clean=clean)
        assert log.aborted_transactions(0, log.end_offset) == aborted
        assert log.producers.first_open_offset == first_unstable
        log.close()
