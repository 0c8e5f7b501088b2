from __future__ import annotations

from typing import Any

from penstock.log.config import LogConfig
from penstock.log.inspect import (
    FolderSummary,
    InspectedBatch,
    Problem,
    partition_folders,
    read_offset_index,
    read_segment,
    read_snapshot,
    read_time_index,
    read_txn_index,
    segment_files,
    verify_folder,
)
from penstock.wire.control import ControlType

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def fill(bench: Any) -> None:
    log = bench.open(CONFIG)
    for number in range(20):
        bench.clock.now_ms += 1
        bench.append(
            log, 2, size_bytes=30, epoch=number // 8, producer_id=1, producer_epoch=0, base_sequence=2 * number
        )
    bench.append(log, producer_id=2, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_marker(
        ControlType.ABORT,
        producer_id=2,
        producer_epoch=0,
        coordinator_epoch=0,
        leader_epoch=2,
        now_ms=bench.clock.now_ms,
    )
    log.close()


def problems(bench: Any) -> list[Problem]:
    return [item for item in verify_folder(bench.disk, bench.folder) if isinstance(item, Problem)]


def test_a_sound_folder(bench: Any) -> None:
    fill(bench)
    items = list(verify_folder(bench.disk, bench.folder, with_records=True))
    assert [type(item) for item in items] == [FolderSummary]
    summary = items[0]
    assert isinstance(summary, FolderSummary)
    assert (summary.batches, summary.start_offset, summary.end_offset) == (22, 0, 42)
    assert summary.segments == len(segment_files(bench.disk, bench.folder)) > 2
    assert segment_files(bench.disk, "/data") == segment_files(bench.disk, bench.folder)
    assert partition_folders(bench.disk, "/data") == partition_folders(bench.disk, bench.folder) == [bench.folder]


def test_batches_records_and_markers(bench: Any) -> None:
    fill(bench)
    paths = segment_files(bench.disk, bench.folder)
    batches = [item for path in paths for item in read_segment(bench.disk, path, with_records=True)]
    assert all(isinstance(batch, InspectedBatch) and batch.problem is None for batch in batches)
    last = batches[-1]
    assert isinstance(last, InspectedBatch) and last.control is not None
    assert last.control.type is ControlType.ABORT
    offsets = [record.offset for batch in batches if isinstance(batch, InspectedBatch) for record in batch.records]
    assert offsets == list(range(41))


def test_the_other_files(bench: Any) -> None:
    fill(bench)
    stem = segment_files(bench.disk, bench.folder)[0].removesuffix(".log")
    index = read_offset_index(bench.disk, stem + ".index", 0)
    assert index and index == sorted(index)
    times = read_time_index(bench.disk, stem + ".timeindex", 0)
    assert times and times == sorted(times)
    transactions = [name for name in bench.files() if name.endswith(".txnindex")]
    assert [entry[:3] for entry in read_txn_index(bench.disk, f"{bench.folder}/{transactions[0]}")] == [(2, 40, 41)]
    snapshots = [name for name in bench.files() if name.endswith(".snapshot")]
    assert [state.producer_id for state in read_snapshot(bench.disk, f"{bench.folder}/{snapshots[-1]}")] == [1, 2]


def test_every_kind_of_damage_is_told(bench: Any) -> None:
    fill(bench)
    first, second, *_ = segment_files(bench.disk, bench.folder)
    assert problems(bench) == []
    bench.disk.corrupt(first, 80)
    assert [(found.path, found.position) for found in problems(bench)] == [(first, 0)]
    bench.disk.corrupt(first, 80)
    bench.disk.corrupt(second, 16, 0xFF)
    assert "magic" in problems(bench)[0].text
    bench.disk.corrupt(second, 16, 0xFF)
    bench.disk.corrupt(first.replace(".log", ".index"), 7)
    assert problems(bench)[0].path.endswith(".index")
    bench.disk.corrupt(first.replace(".log", ".index"), 7)
    bench.disk.corrupt(first.replace(".log", ".timeindex"), 7)
    assert problems(bench)[0].path.endswith(".timeindex")
    bench.disk.corrupt(first.replace(".log", ".timeindex"), 7)
    snapshot = f"{bench.folder}/{next(name for name in bench.files() if name.endswith('.snapshot'))}"
    bench.disk.corrupt(snapshot, 8)
    assert problems(bench) == [Problem(snapshot, None, "the checksum does not match")]


def test_a_torn_tail_and_kafkas_padding(bench: Any) -> None:
    fill(bench)
    last = segment_files(bench.disk, bench.folder)[-1]
    for suffix, size_bytes in ((".index", 10 << 12), (".timeindex", 12 << 12)):
        bench.disk.open(last.replace(".log", suffix)).truncate(size_bytes)
    assert problems(bench) == []
    bench.disk.open(last).truncate(bench.disk.file_size(last) - 5)
    found = problems(bench)
    assert "where" in found[0].text and found[0].path == last


def test_only_closed_segments_must_have_their_indexes(bench: Any) -> None:
    log = bench.open(LogConfig(segment_bytes=400))
    for _ in range(12):
        bench.append(log)
    assert [item for item in verify_folder(bench.disk, bench.folder) if isinstance(item, Problem)] == []
    lost = f"{bench.folder}/00000000000000000000.index"
    bench.disk.remove(lost)
    (problem,) = (item for item in verify_folder(bench.disk, bench.folder) if isinstance(item, Problem))
    assert (problem.path, problem.text) == (lost, "is missing")


def test_aborted_transactions_that_the_index_lacks_and_open_ones_are_told(bench: Any) -> None:
    log = bench.open(CONFIG)
    for producer in range(3):
        for sequence in range(2):
            bench.append(log, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
        if producer < 2:
            log.append_marker(
                ControlType.ABORT,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=0,
                leader_epoch=0,
                now_ms=bench.clock.now_ms,
            )
    log.roll(bench.clock.now_ms)
    bench.append(log, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.close()
    (summary,) = verify_folder(bench.disk, bench.folder)
    assert isinstance(summary, FolderSummary)
    assert (summary.open_transactions, summary.first_open_offset) == (2, 6)
    path = f"{bench.folder}/{0:020d}.txnindex"
    file = bench.disk.open(path)
    content = file.read(file.size(), 0)
    file.write([content[:10] + (1).to_bytes(8, "big")], 0)
    assert [found.text for found in problems(bench)] == [
        "the transaction of producer 0 that was aborted at offset 2 begins at 0, not at 1"
    ]
    file.truncate(34)
    assert [found.text for found in problems(bench)][1:] == [
        "the transaction of producer 1 that was aborted at offset 5 is missing"
    ]
    bench.disk.remove(path)
    assert [found.text.rpartition(" ")[2] for found in problems(bench)] == ["missing", "missing"]
