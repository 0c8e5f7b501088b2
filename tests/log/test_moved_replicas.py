"""Replicas that were moved between log directories: which of two folders counts, whatever is out of reach."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from penstock.base.identifiers import TopicPartition
from penstock.log.config import LogConfig
from penstock.log.log_directory import CLEAN_STOP_FILE, LogDirectory, retire_sources
from penstock.log.moved_from import read_moved_from, write_moved_from
from penstock.log.names import future_folder_name, partition_of_folder, partition_of_future_folder
from penstock.testing.log_machine import FixedClock
from penstock.testing.sim_disk import SimDisk
from penstock.wire.batch import read_header

CONFIG = LogConfig()
TOPIC_ID = UUID(int=5)
ORDERS = TopicPartition("orders", 0)


def open_directory(disk: SimDisk, path: str) -> LogDirectory:
    chance = random.Random(disk.operations_count)
    return LogDirectory.open(disk, FixedClock(), chance, path, node_id=1, cluster_id="c")


def append(bench: Any, log: Any) -> None:
    batch = bench.batch([b"v"])
    log.append_as_leader(batch, read_header(batch), 0, bench.clock.now_ms)


def moved(bench: Any, source: LogDirectory, target: LogDirectory) -> None:
    """As much of a move as happens on disk, until the old replica is to be removed."""
    log = source.logs[ORDERS]
    stored = target.new_future(ORDERS, TOPIC_ID)
    target.make_future(stored, source)
    future = target.open_future(stored, TOPIC_ID, CONFIG, is_clean=True)
    for _ in range(log.end_offset):
        append(bench, future)
    target.finish_future(ORDERS, log.end_offset)
    log.take_over(target.promote_future(stored, TOPIC_ID, CONFIG))
    source.moved_away(ORDERS)
    target.logs[ORDERS] = log


def test_names() -> None:
    name = future_folder_name(ORDERS, "ab12")
    assert name == "orders-0.ab12-future"
    assert partition_of_future_folder(name) == ORDERS and partition_of_folder(name) is None
    assert partition_of_future_folder("orders-0.ab12-delete") is None
    assert partition_of_future_folder("orders-0") is None
    assert future_folder_name(TopicPartition("x" * 240, 0), "0" * 32) is None


def test_the_file() -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    ids = (UUID(int=1), UUID(int=2))
    assert read_moved_from(disk, "/d") == ()
    write_moved_from(disk, "/d", ids)
    assert read_moved_from(disk, "/d") == ids
    write_moved_from(disk, "/d", ())
    assert read_moved_from(disk, "/d") == () and disk.list_dir("/d") == []


def test_the_old_one_is_stale_even_if_it_comes_back_much_later(bench: Any) -> None:
    disk = SimDisk()
    first, second, third = (open_directory(disk, path) for path in ("/1", "/2", "/3"))
    log = first.open_partition(ORDERS, TOPIC_ID, CONFIG)
    append(bench, log)
    moved(bench, first, second)
    append(bench, log)
    retire_sources(second, ORDERS, [second, third])
    assert disk.is_dir("/1/orders-0"), "it was out of reach"
    moved(bench, second, third)
    append(bench, log)
    retire_sources(third, ORDERS, [second, third])
    assert not disk.is_dir("/2/orders-0") and disk.is_dir("/1/orders-0")
    assert read_moved_from(disk, "/3/orders-0") == (first.meta.directory_id,)
    retire_sources(third, ORDERS, [first, second, third])
    assert not disk.is_dir("/1/orders-0")
    assert read_moved_from(disk, "/3/orders-0") == ()
    assert log.end_offset == 3 and log.folder == "/3/orders-0"


def test_another_topic_of_the_name_is_left_alone(bench: Any) -> None:
    disk = SimDisk()
    first, second = open_directory(disk, "/1"), open_directory(disk, "/2")
    append(bench, first.open_partition(ORDERS, TOPIC_ID, CONFIG))
    moved(bench, first, second)
    first.delete_stored(ORDERS)
    first.open_partition(ORDERS, UUID(int=6), CONFIG)
    retire_sources(second, ORDERS, [first, second])
    assert disk.is_dir("/1/orders-0")


def test_a_stop_is_clean_only_if_the_copies_are(bench: Any) -> None:
    disk = SimDisk()
    first, second = open_directory(disk, "/1"), open_directory(disk, "/2")
    first.open_partition(ORDERS, TOPIC_ID, CONFIG)
    stored = second.new_future(ORDERS, TOPIC_ID)
    second.make_future(stored, first)
    append(bench, second.open_future(stored, TOPIC_ID, CONFIG, is_clean=True))
    second.abandon()
    second = open_directory(disk, "/2")
    second.close()
    assert not disk.exists(f"/2/{CLEAN_STOP_FILE}"), "one of unknown state is there still"
    second = open_directory(disk, "/2")
    assert second.stored_futures() == [stored]
    assert second.open_future(stored, TOPIC_ID, CONFIG).end_offset == 1
    second.close()
    assert disk.exists(f"/2/{CLEAN_STOP_FILE}")
    second = open_directory(disk, "/2")
    second.delete_future(stored)
    second.delete_future(stored)
    assert second.stored_futures() == [] and len(second.deleted_folders()) == 1


def test_where_a_moved_log_starts_is_known_before_it_counts(bench: Any) -> None:
    disk = SimDisk()
    first, second = open_directory(disk, "/1"), open_directory(disk, "/2")
    log = first.open_partition(ORDERS, TOPIC_ID, CONFIG)
    for _ in range(3):
        append(bench, log)
    stored = second.new_future(ORDERS, TOPIC_ID)
    second.make_future(stored, first)
    future = second.open_future(stored, TOPIC_ID, CONFIG, is_clean=True)
    for _ in range(3):
        append(bench, future)
    future.advance_start_offset(2)
    second.finish_future(ORDERS, 3)
    second.promote_future(stored, TOPIC_ID, CONFIG)
    disk.crash("all")
    again = open_directory(disk, "/2")
    opened = again.open_partition(ORDERS, TOPIC_ID, CONFIG)
    assert (opened.start_offset, opened.end_offset, again.high_watermarks[ORDERS]) == (2, 3, 3)
