"""The simulated disk: what survives a crash, and the faults it can be asked for."""

from __future__ import annotations

import errno

import pytest

from penstock.base.world import Disk, read_file, write_file_durably
from penstock.testing.sim_disk import Crashed, SimDisk, SimFile


def create(disk: SimDisk, path: str, content: bytes = b"") -> SimFile:
    file = disk.open(path, create=True)
    file.write([content], 0)
    return file


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk(capacity_bytes=1_000_000)
    made.make_dirs("/d")
    made.sync_dir("/")
    return made


def test_it_is_a_disk(disk: SimDisk) -> None:
    as_disk: Disk = disk
    write_file_durably(as_disk, "/d/small", b"content")
    assert read_file(as_disk, "/d/small") == b"content"
    disk.crash()
    assert read_file(as_disk, "/d/small") == b"content"


def test_nothing_is_durable_without_syncs(disk: SimDisk) -> None:
    create(disk, "/d/a", b"abc")
    assert disk.after_crash("all").snapshot() == {"/d": None}
    assert disk.after_crash("none").snapshot() == {"/d": None, "/d/a": b"abc"}


def test_a_synced_file_without_its_name_is_lost(disk: SimDisk) -> None:
    create(disk, "/d/a", b"abc").sync()
    assert disk.after_crash("all").snapshot() == {"/d": None}


def test_a_name_without_its_content_is_an_empty_file(disk: SimDisk) -> None:
    create(disk, "/d/a", b"abc")
    disk.sync_dir("/d")
    assert disk.after_crash("all").snapshot() == {"/d": None, "/d/a": b""}


def test_a_new_folder_needs_a_sync_of_its_parent(disk: SimDisk) -> None:
    disk.make_dirs("/d/e")
    create(disk, "/d/e/f", b"x").sync()
    disk.sync_dir("/d/e")
    assert disk.after_crash("all").snapshot() == {"/d": None}
    disk.sync_dir("/d")
    assert disk.after_crash("all").snapshot() == {"/d": None, "/d/e": None, "/d/e/f": b"x"}


def test_every_single_change_can_be_lost(disk: SimDisk) -> None:
    file = create(disk, "/d/a")
    disk.sync_dir("/d")
    for index in range(3):
        file.write([b"%d" % index * 2], index * 2)
    found = {disk.after_crash({change.number}).snapshot()["/d/a"] for change in disk.pending()}
    assert found == {b"\0\x001122", b"00\0\x0022", b"0011"}


def test_the_last_surviving_write_can_be_torn(disk: SimDisk) -> None:
    file = create(disk, "/d/a", b"abc")
    disk.sync_dir("/d")
    file.write([b"de", b"f"], 3)
    assert disk.after_crash("none", torn=1).snapshot()["/d/a"] == b"abcd"
    last = disk.operations_count
    assert disk.after_crash({last}, torn=1).snapshot()["/d/a"] == b"a"
    assert disk.after_crash("none", torn={last - 2: 2, last: 0}).snapshot()["/d/a"] == b"ab"


def test_pages_inside_a_write_can_be_lost(disk: SimDisk) -> None:
    file = create(disk, "/d/a", b"o" * 5000)
    file.sync()
    disk.sync_dir("/d")
    file.write([b"n" * 10_000], 0)
    number = disk.operations_count
    content = disk.after_crash("none", lost_pages={(number, 1)}).snapshot()["/d/a"]
    assert content == b"n" * 4096 + b"o" * (5000 - 4096) + bytes(8192 - 5000) + b"n" * (10_000 - 8192)
    assert disk.after_crash("none", lost_pages=lambda write, page: True).snapshot()["/d/a"] == b"o" * 5000 + bytes(5000)


def test_a_lost_truncation_leaves_the_old_end(disk: SimDisk) -> None:
    file = create(disk, "/d/a", b"abcdef")
    file.sync()
    disk.sync_dir("/d")
    file.truncate(2)
    file.write([b"X"], 2)
    assert disk.after_crash({disk.operations_count - 1}).snapshot()["/d/a"] == b"abXdef"
    assert disk.after_crash("all").snapshot()["/d/a"] == b"abcdef"


def test_a_rename_is_old_or_new(disk: SimDisk) -> None:
    write_file_durably(disk, "/d/a", b"old")
    create(disk, "/d/b", b"new").sync()
    disk.rename("/d/b", "/d/a")
    renamed = disk.operations_count
    assert disk.after_crash("all").snapshot() == {"/d": None, "/d/a": b"old"}
    assert disk.after_crash({renamed}).snapshot() == {"/d": None, "/d/a": b"old", "/d/b": b"new"}
    assert disk.after_crash(lambda change: change.kind == "create").snapshot() == {"/d": None, "/d/a": b"new"}
    disk.sync_dir("/d")
    assert disk.after_crash("all").snapshot() == {"/d": None, "/d/a": b"new"}


def test_a_file_renamed_twice_has_one_name(disk: SimDisk) -> None:
    write_file_durably(disk, "/d/a", b"x")
    disk.rename("/d/a", "/d/b")
    first = disk.operations_count
    disk.rename("/d/b", "/d/c")
    assert disk.after_crash({first}).snapshot() == {"/d": None, "/d/c": b"x"}


@pytest.mark.parametrize("synced", ["/d", "/e"])
def test_a_rename_between_folders_is_durable_with_either(disk: SimDisk, synced: str) -> None:
    disk.make_dirs("/e")
    disk.sync_dir("/")
    create(disk, "/d/a", b"x").sync()
    disk.rename("/d/a", "/e/a")
    create(disk, "/d/later", b"")
    create(disk, "/e/later", b"")
    assert disk.after_crash("all").snapshot() == {"/d": None, "/e": None}
    disk.sync_dir(synced)
    assert disk.after_crash("all").snapshot() == {"/d": None, "/e": None, "/e/a": b"x", f"{synced}/later": b""}


def test_a_lost_removal_keeps_the_folder_too(disk: SimDisk) -> None:
    write_file_durably(disk, "/d/a", b"x")
    disk.remove("/d/a")
    removed = disk.operations_count
    disk.remove_dir("/d")
    assert disk.after_crash({removed}).snapshot() == {"/d": None, "/d/a": b"x"}
    assert disk.after_crash("none").snapshot() == {}


def test_changes_of_a_file_that_is_gone_for_good_are_forgotten(disk: SimDisk) -> None:
    file = create(disk, "/d/a", b"x")
    disk.sync_dir("/d")
    disk.remove("/d/a")
    assert [change.kind for change in disk.pending()] == ["write", "remove"]
    disk.sync_dir("/d")
    assert disk.pending() == []
    file.write([b"y"], 0)
    replaced = create(disk, "/d/b", b"old")
    create(disk, "/d/c", b"new").sync()
    disk.rename("/d/c", "/d/b")
    disk.sync_dir("/d")
    replaced.write([b"z"], 0)
    disk.sync_dir("/d")
    assert disk.pending() == []


def test_names_may_be_lost_in_order_only(disk: SimDisk) -> None:
    create(disk, "/d/a").sync()
    first = disk.operations_count - 1
    create(disk, "/d/b").sync()
    assert set(disk.after_crash({first}).snapshot()) == {"/d", "/d/b"}
    assert set(disk.after_crash({first}, ordered_names=True).snapshot()) == {"/d"}


def test_stop_at_every_operation(disk: SimDisk) -> None:
    def workload(on: SimDisk) -> None:
        try:
            write_file_durably(on, "/a", b"1")
            write_file_durably(on, "/a", b"2")
        finally:
            on.make_dirs("/finally")

    whole = SimDisk()
    workload(whole)
    for number in range(1, whole.operations_count + 1):
        stopped = SimDisk()
        stopped.stop_at(number)
        with pytest.raises(Crashed):
            workload(stopped)
        assert stopped.operations_count == number
        for lost in ("all", "none"):
            after = stopped.after_crash(lost).snapshot()
            assert "/finally" not in after or number == whole.operations_count
            assert after.get("/a") in (None, b"1", b"2")


def test_before_operation_sees_every_state_in_one_run(disk: SimDisk) -> None:
    seen: list[bytes | None] = []
    disk.device.before_operation = lambda operation: seen.append(disk.after_crash("all").snapshot().get("/d/a"))
    write_file_durably(disk, "/d/a", b"1")
    write_file_durably(disk, "/d/a", b"2")
    assert seen == [None] * 6 + [b"1"] * 6  # create, truncate, write, sync, rename, sync_dir


def test_kill_keeps_the_page_cache_but_not_handles_and_locks(disk: SimDisk) -> None:
    file = create(disk, "/d/a", b"abc")
    other = disk.for_process()
    kept = other.open("/d/a")
    lock = disk.lock("/d/lock")
    with pytest.raises(BlockingIOError):
        other.lock("/d/lock")
    disk.kill()
    with pytest.raises(OSError) as raised:
        file.read(1, 0)
    assert raised.value.errno == errno.EBADF
    assert kept.read(3, 0) == b"abc"
    again = other.lock("/d/lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock("/d/lock")
    again.release()
    disk.lock("/d/lock")


def test_after_a_crash_old_handles_are_dead(disk: SimDisk) -> None:
    file = create(disk, "/d/a", b"abc")
    disk.crash("none")
    with pytest.raises(OSError) as raised:
        file.write([b"x"], 0)
    assert raised.value.errno == errno.EBADF
    file.close()
    assert read_file(disk, "/d/a") == b"abc"


def test_an_ended_process_cannot_touch_the_disk(disk: SimDisk) -> None:
    disk.end()
    with pytest.raises(Crashed):
        disk.exists("/d")


def test_fail_at(disk: SimDisk) -> None:
    file = create(disk, "/d/a", b"abc")
    disk.fail_at(disk.operations_count + 1, OSError(errno.EIO, "bad"), written_bytes=2)
    with pytest.raises(OSError, match="bad"):
        file.write([b"wxyz"], 3)
    assert file.read(10, 0) == b"abcwx"
    file.truncate(3)


def test_a_full_disk_takes_what_fits(disk: SimDisk) -> None:
    disk.set_capacity(10)
    file = create(disk, "/d/a", b"12345678")
    with pytest.raises(OSError) as raised:
        file.write([b"90ab"], 8)
    assert raised.value.errno == errno.ENOSPC
    assert file.read(100, 0) == b"1234567890"
    assert disk.free_bytes("/") == 0
    file.truncate(8)
    file.write([b"9"], 8)
    disk.remove("/d/a")
    assert disk.free_bytes("/") == 1
    other = disk.for_process().open("/d/b", create=True)
    other.write([b"1"], 0)
    disk.kill()
    assert disk.free_bytes("/") == 9


def test_a_file_that_nobody_refers_to_takes_no_room(disk: SimDisk) -> None:
    disk.set_capacity(10)
    file = create(disk, "/d/a", b"12345678")
    disk.remove("/d/a")
    assert disk.free_bytes("/") == 2
    del file
    assert disk.free_bytes("/") == 10


def test_data_of_a_failed_sync_is_shown_and_then_lost(disk: SimDisk) -> None:
    file = create(disk, "/d/a", b"abc")
    file.sync()
    disk.sync_dir("/d")
    file.write([b"def"], 3)
    disk.fail_sync()
    with pytest.raises(OSError) as raised:
        file.sync()
    assert raised.value.errno == errno.EIO
    file.sync()
    assert file.read(10, 0) == b"abcdef"
    file.write([b"ghi"], 6)
    file.sync()
    disk.crash("none")
    assert read_file(disk, "/d/a") == b"abc\0\0\0ghi"


def test_corruption_lasts(disk: SimDisk) -> None:
    create(disk, "/d/a", b"abc")
    disk.corrupt("/d/a", 1, 0x20)
    assert read_file(disk, "/d/a") == b"aBc"
    disk.crash("none")
    assert read_file(disk, "/d/a") == b"aBc"


def test_evicted_pages_are_not_cached_until_read(disk: SimDisk) -> None:
    file = create(disk, "/d/a", bytes(10_000))
    assert file.is_cached(0, 10_000)
    disk.evict("/d/a")
    assert not file.is_cached(0, 10)
    file.read(4096, 0)
    assert file.is_cached(0, 4096)
    assert not file.is_cached(0, 4097)
