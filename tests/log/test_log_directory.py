from __future__ import annotations

import random
from threading import Event, Thread
from typing import Any
from uuid import UUID

import pytest

from penstock.base.errors import ApiError
from penstock.base.identifiers import TopicPartition
from penstock.base.world import read_file, write_file_durably
from penstock.log.config import LogConfig
from penstock.log.file_cache import FileCache
from penstock.log.log_directory import (
    CLEAN_STOP_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_STARTS_FILE,
    RECOVERY_POINTS_FILE,
    LogDirectory,
    choose_directory,
)
from penstock.log.meta_properties import LogDirectoryError
from penstock.testing.log_machine import FixedClock, read_all
from penstock.testing.sim_disk import SimDisk, SimFile
from penstock.wire.batch import read_header

CONFIG = LogConfig()
TOPIC_ID = UUID(int=5)
ORDERS = TopicPartition("orders", 0)
PATH = "/var/data"


def open_directory(disk: SimDisk, path: str = PATH, node_id: int = 1, cluster_id: str = "c") -> LogDirectory:
    chance = random.Random(disk.operations_count)
    return LogDirectory.open(disk, FixedClock(), chance, path, node_id=node_id, cluster_id=cluster_id)


def test_all_logs_of_a_directory_share_one_cache_of_files() -> None:
    directory = open_directory(SimDisk())
    logs = [directory.open_partition(TopicPartition("orders", number), TOPIC_ID, CONFIG) for number in range(3)]
    assert all(log.files is directory.files for log in logs)


def append(bench: Any, log: Any, count: int = 1) -> None:
    batch = bench.batch([b"v"] * count)
    log.append_as_leader(batch, read_header(batch), 0, bench.clock.now_ms)


def test_a_new_directory_and_its_restart(bench: Any) -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    assert not directory.was_clean
    append(bench, directory.open_partition(ORDERS, TOPIC_ID, CONFIG), 3)
    directory.close()
    again = open_directory(disk)
    assert again.was_clean
    assert again.meta == directory.meta
    assert again.stored_partitions() == [(ORDERS, TOPIC_ID)]
    log = again.open_partition(ORDERS, TOPIC_ID, CONFIG)
    assert log.end_offset == log.recovery_point == 3
    assert not disk.exists(f"{PATH}/{CLEAN_STOP_FILE}")


def test_the_mark_of_a_clean_stop_counts_once(bench: Any) -> None:
    disk = SimDisk()
    open_directory(disk).close()
    assert open_directory(disk).was_clean
    disk.kill()
    assert not open_directory(disk).was_clean


def test_an_empty_mark_is_no_mark() -> None:
    disk = SimDisk()
    open_directory(disk).abandon()
    disk.open(f"{PATH}/{CLEAN_STOP_FILE}", create=True)
    assert not open_directory(disk).was_clean


def test_a_second_process_is_refused() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    with pytest.raises(LogDirectoryError, match="another process"):
        open_directory(disk.for_process())
    directory.abandon()
    open_directory(disk.for_process())


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "text"),
    [(2, "c", "belongs to broker 1, this is broker 2"), (1, "d", "belongs to cluster")],
)
def test_the_directory_of_another_is_refused_and_not_locked(node_id: int, cluster_id: str, text: str) -> None:
    disk = SimDisk()
    open_directory(disk).close()
    with pytest.raises(LogDirectoryError, match=text):
        open_directory(disk, node_id=node_id, cluster_id=cluster_id)
    open_directory(disk)


@pytest.mark.parametrize(
    "content",
    [
        b"#\n#Mon Nov 16 07:00:00 UTC 2026\nnode.id=1\nversion=1\ncluster.id=c\ndirectory.id=Fw9d1TsFQyeROOEPDqQAIw\n",
        b"version=0\nbroker.id=1\ncluster.id=c\n",
    ],
)
def test_what_kafka_wrote_is_understood(content: bytes) -> None:
    disk = SimDisk()
    disk.make_dirs(PATH)
    write_file_durably(disk, f"{PATH}/meta.properties", content)
    directory = open_directory(disk)
    assert directory.meta.node_id == 1
    if b"directory.id" in content:
        assert directory.meta.directory_id == UUID("170f5dd5-3b05-4327-9138-e10f0ea40023")
        assert read_file(disk, f"{PATH}/meta.properties") == content


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"version=9\n"])
def test_a_damaged_owner_file_is_refused(content: bytes) -> None:
    disk = SimDisk()
    disk.make_dirs(PATH)
    write_file_durably(disk, f"{PATH}/meta.properties", content)
    with pytest.raises(LogDirectoryError, match="damaged"):
        open_directory(disk)


def test_checkpoints(bench: Any) -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.open_partition(ORDERS, TOPIC_ID, CONFIG)
    append(bench, log, 5)
    directory.write_offsets()
    assert read_file(disk, f"{PATH}/{RECOVERY_POINTS_FILE}") == b"0\n1\norders 0 0\n"
    log.flush()
    log.advance_start_offset(2)
    directory.write_offsets()
    directory.write_high_watermarks({ORDERS: 4})
    assert read_file(disk, f"{PATH}/{RECOVERY_POINTS_FILE}") == b"0\n1\norders 0 5\n"
    assert read_file(disk, f"{PATH}/{LOG_STARTS_FILE}") == b"0\n1\norders 0 2\n"
    assert read_file(disk, f"{PATH}/{HIGH_WATERMARKS_FILE}") == b"0\n1\norders 0 4\n"
    operations = disk.operations_count
    directory.write_offsets()
    assert disk.operations_count == operations  # nothing new, nothing written
    disk.crash(lost="all")
    again = open_directory(disk)
    assert again.high_watermarks == {ORDERS: 4}
    log = again.open_partition(ORDERS, TOPIC_ID, CONFIG)
    assert (log.start_offset, log.end_offset) == (2, 5)


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_damaged_checkpoints_cost_time_and_nothing_else(bench: Any, content: bytes) -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    append(bench, directory.open_partition(ORDERS, TOPIC_ID, CONFIG), 5)
    directory.close()
    disk.remove(f"{PATH}/{CLEAN_STOP_FILE}")
    for name in (RECOVERY_POINTS_FILE, LOG_STARTS_FILE, HIGH_WATERMARKS_FILE):
        write_file_durably(disk, f"{PATH}/{name}", content)
    log = open_directory(disk).open_partition(ORDERS, TOPIC_ID, CONFIG)
    assert log.end_offset == 5 and log.recovery.checked_bytes > 0


def test_a_log_that_is_cut_lowers_the_checkpoint_first(bench: Any) -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.open_partition(ORDERS, TOPIC_ID, CONFIG)
    for _ in range(4):
        append(bench, log)
    log.flush()
    directory.write_offsets()
    log.truncate_to(2)
    assert read_file(disk, f"{PATH}/{RECOVERY_POINTS_FILE}") == b"0\n1\norders 0 2\n"


def test_a_cut_that_cannot_be_noted_changes_nothing(bench: Any) -> None:
    disk = SimDisk()
    log = open_directory(disk).open_partition(ORDERS, TOPIC_ID, CONFIG)
    append(bench, log, 4)
    log.flush()
    disk.set_capacity(0)
    for cut in (lambda: log.truncate_to(2), lambda: log.truncate_fully_and_start_at(9)):
        with pytest.raises(ApiError, match="No space left"):
            cut()
        assert (log.start_offset, log.end_offset, log.recovery_point) == (0, 4, 4)
    assert len(read_all(log)) == 1


def test_a_deleted_partition_leaves_nothing_to_the_next_of_its_name(bench: Any) -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.open_partition(ORDERS, TOPIC_ID, CONFIG)
    append(bench, log, 9)
    log.flush()
    log.advance_start_offset(7)
    directory.write_offsets()
    directory.write_high_watermarks({ORDERS: 9})
    folder = directory.delete_partition(ORDERS)
    assert folder.startswith(f"{PATH}/orders-0.") and folder.endswith("-delete")
    assert directory.deleted_folders() == [folder]
    assert directory.stored_partitions() == []
    assert directory.high_watermarks == {}
    directory = open_directory(disk.after_crash(lost="all"))
    new = directory.open_partition(ORDERS, UUID(int=6), CONFIG)
    assert read_file(directory.disk, f"{PATH}/{LOG_STARTS_FILE}") == b"0\n0\n"
    assert read_file(directory.disk, f"{PATH}/{HIGH_WATERMARKS_FILE}") == b"0\n0\n"
    assert (new.start_offset, new.end_offset, new.recovery_point) == (0, 0, 0)
    directory.remove_deleted(folder)
    assert directory.deleted_folders() == []


def test_deleting_partitions_takes_no_room_and_few_syncs(bench: Any) -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    names = [TopicPartition("orders", index) for index in range(10)]
    for name in names:
        append(bench, directory.open_partition(name, TOPIC_ID, CONFIG))
    directory.write_offsets()
    disk.set_capacity(0)
    before = disk.operations_count
    for name in names:
        directory.delete_partition(name)
    assert disk.operations_count - before == 2 * len(names)  # a rename, and the sync of the folder
    disk.set_capacity(1 << 20)
    directory.write_offsets()
    assert read_file(disk, f"{PATH}/{RECOVERY_POINTS_FILE}") == b"0\n0\n"


def test_the_files_of_a_deleted_partition_are_not_those_of_the_next_of_its_name(bench: Any) -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    small = LogConfig(segment_bytes=100)
    for topic_id in (TOPIC_ID, UUID(int=6)):
        log = directory.open_partition(ORDERS, topic_id, small)
        for _ in range(3):
            append(bench, log, 9)
        log.offset_for_timestamp(bench.clock.now_ms, end_offset=log.end_offset)
        stems = {segment.stem for segment in log.segments[:-1]}
        assert all(disk.exists(f"{stem}.index") and disk.exists(f"{stem}.timeindex") for stem in stems)
        directory.remove_deleted(directory.delete_partition(ORDERS))
        assert len(directory.files) == 0


def test_a_file_that_is_dropped_while_another_thread_opens_it_is_dropped() -> None:
    is_opening, may_open = Event(), Event()

    class SlowDisk(SimDisk):
        def open(self, path: str, *, create: bool = False) -> SimFile:
            is_opening.set()
            assert may_open.wait(10)
            return super().open(path, create=create)

    files = FileCache(SlowDisk())
    opening = Thread(target=lambda: files.get("/file", create=True))
    opening.start()
    assert is_opening.wait(10)
    dropping = Thread(target=files.drop, args=("/file",))
    dropping.start()
    dropping.join(0.05)
    may_open.set()
    opening.join()
    dropping.join()
    assert len(files) == 0


def test_a_partition_can_be_closed_and_opened_while_the_directory_is_in_use(bench: Any) -> None:
    directory = open_directory(SimDisk())
    append(bench, directory.open_partition(ORDERS, TOPIC_ID, CONFIG), 3)
    directory.close_partition(ORDERS)
    log = directory.open_partition(ORDERS, TOPIC_ID, CONFIG)
    assert log.recovery.was_clean and len(read_all(log)) == 1


def test_after_a_failure_there_is_no_mark_of_a_clean_stop(bench: Any) -> None:
    for fail_all in (False, True):
        disk = SimDisk()
        open_directory(disk).close()
        directory = open_directory(disk)
        log = directory.open_partition(ORDERS, TOPIC_ID, CONFIG)
        append(bench, log)
        if fail_all:
            directory.go_offline("the disk is gone")
        else:
            log.fail("a sync failed")
        directory.close()
        assert not disk.exists(f"{PATH}/{CLEAN_STOP_FILE}")


def test_folders_that_are_no_partitions_are_left_alone() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    for name in ("x", "x-", "x-01", "-1", "a b-1", "orders-0-stray", "__cluster_metadata-0", "t-1"):
        disk.make_dirs(f"{PATH}/{name}")
    assert [found.topic_partition for found in directory.stored_partitions()] == [("t", 1)]
    assert directory.stored_partitions()[0].topic_id is None


def test_a_new_partition_goes_where_the_fewest_are() -> None:
    disk = SimDisk()
    first, second = open_directory(disk, "/a"), open_directory(disk, "/b")
    first.open_partition(ORDERS, TOPIC_ID, CONFIG)
    assert choose_directory([first, second]) is second
    second.go_offline("broken")
    assert choose_directory([first, second]) is first
    first.go_offline("broken")
    with pytest.raises(LogDirectoryError):
        choose_directory([first, second])


def test_the_reserve() -> None:
    disk = SimDisk(capacity_bytes=10_000)
    directory = open_directory(disk)
    assert directory.has_room(5000)
    assert not directory.has_room(10_000)


def test_making_partitions_does_not_sync(bench: Any) -> None:
    """A thousand new topics must not be a thousand waits for the disk."""
    disk = SimDisk()
    directory = open_directory(disk)
    syncs: list[str] = []
    disk.device.before_operation = lambda operation: syncs.append(operation.kind)
    for number in range(20):
        directory.open_partition(TopicPartition("t", number), TOPIC_ID, CONFIG)
    assert "sync" not in syncs and "sync_dir" not in syncs
