"""The journal: what it reads back, what it cuts, what it refuses."""

from __future__ import annotations

import pytest

from penstock.testing.sim_disk import SimDisk
from penstock.zookeeper.journal import Journal, JournalCorruptError, Recovered

FOLDER = "/keeper"
FIRST = f"{FOLDER}/journal.{0:016x}"


def recover(disk: SimDisk) -> Recovered:
    disk.kill()
    disk.make_dirs(FOLDER)
    disk.sync_dir("/")
    return Journal.recover(disk, FOLDER)


def written(*payloads: bytes) -> SimDisk:
    disk = SimDisk()
    journal = recover(disk).journal
    for payload in payloads:
        journal.append(payload)
    return disk


def test_what_was_appended_comes_back() -> None:
    disk = written(b"one", b"", b"three" * 3000)
    recovered = recover(disk)
    assert recovered.payloads == [b"one", b"", b"three" * 3000]
    assert (recovered.snapshot, recovered.cut_bytes) == (None, 0)
    recovered.journal.append(b"four")
    assert recover(disk).payloads[-1] == b"four"


def test_a_torn_tail_is_cut_and_overwritten() -> None:
    disk = written(b"one", b"two" * 100)
    size = disk.file_size(FIRST)
    for torn_bytes in range(1, 312):
        torn = disk.after_crash(lost="none")
        torn.open(FIRST).truncate(size - torn_bytes)
        recovered = recover(torn)
        assert recovered.payloads == [b"one"]
        assert recovered.cut_bytes == 312 - torn_bytes
        recovered.journal.append(b"new")
        assert recover(torn).payloads == [b"one", b"new"]


def test_a_tail_of_zeros_is_cut() -> None:
    disk = written(b"one")
    disk.open(FIRST).write([bytes(5000)], disk.file_size(FIRST))
    recovered = recover(disk)
    assert (recovered.payloads, recovered.cut_bytes) == ([b"one"], 5000)


def test_damage_before_good_frames_is_refused_at_every_byte() -> None:
    disk = written(b"one", b"two", b"three")
    last_frame = disk.file_size(FIRST) - len(b"three") - 12
    for offset in range(disk.file_size(FIRST)):
        damaged = disk.after_crash(lost="none")
        damaged.corrupt(FIRST, offset)
        if offset < last_frame:
            with pytest.raises(JournalCorruptError, match="damaged"):
                recover(damaged)
        else:
            assert recover(damaged).payloads == [b"one", b"two"]


def test_a_frame_inside_data_is_not_taken_for_one() -> None:
    """A client may write the bytes of a real frame into a znode; at another position they are no frame."""
    source = written(b"one")
    frame = source.snapshot()[FIRST][16:]  # type: ignore[index]
    disk = written(b"first", b"x" + frame * 3)
    disk.open(FIRST).truncate(disk.file_size(FIRST) - 1)
    assert recover(disk).payloads == [b"first"]


def test_rotation_starts_a_new_round_and_removes_the_old() -> None:
    disk = written(b"one")
    journal = recover(disk).journal
    journal.rotate(b"snapshot 7", 7)
    journal.append(b"eight")
    recovered = recover(disk)
    assert (recovered.snapshot, recovered.payloads) == (b"snapshot 7", [b"eight"])
    assert disk.list_dir(FOLDER) == [f"journal.{7:016x}", f"snapshot.{7:016x}"]


def test_a_damaged_or_missing_snapshot_is_refused() -> None:
    disk = written()
    recover(disk).journal.rotate(b"snapshot", 7)
    path = f"{FOLDER}/snapshot.{7:016x}"
    for offset in range(disk.file_size(path)):
        damaged = disk.after_crash(lost="none")
        damaged.corrupt(path, offset)
        with pytest.raises(JournalCorruptError, match="checksum"):
            recover(damaged)
    disk.remove(path)
    with pytest.raises(JournalCorruptError, match="not its snapshot"):
        recover(disk)


def test_what_recovery_returned_is_durable() -> None:
    """A frame that a killed process wrote and did not sync, or whose sync failed, is safe once it has been read."""
    for fails in (False, True):
        disk = written(b"one")
        journal = recover(disk).journal
        if fails:
            disk.fail_sync()
        else:
            disk.stop_at(disk.operations_count + 2)
        with pytest.raises(BaseException):  # noqa: B017 - the disk's own Crashed, or OSError
            journal.append(b"two")
        assert recover(disk).payloads == [b"one", b"two"]
        assert recover(disk.after_crash(lost="all")).payloads == [b"one", b"two"]
