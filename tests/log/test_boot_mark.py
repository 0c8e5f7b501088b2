"""Whether a broker may have lost unsynced records: only its machine can make it, and it is remembered until told."""

from __future__ import annotations

import pytest

from penstock.log.boot_mark import BootMark
from penstock.testing.sim_disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk()
    made.make_dirs("/logs")
    made.sync_dir("/")
    return made


def mark(disk: SimDisk, boot_id: str, *, was_clean: bool = False) -> BootMark:
    return BootMark(disk, "/logs", boot_id, was_clean=was_clean)


def test_a_new_directory_has_nothing_that_others_could_count_on(disk: SimDisk) -> None:
    assert mark(disk, "one").has_lost


def test_a_killed_process_loses_nothing(disk: SimDisk) -> None:
    mark(disk, "one").forget_loss()
    assert not mark(disk, "one").has_lost


def test_a_machine_that_stopped_may_have_lost_something(disk: SimDisk) -> None:
    mark(disk, "one").forget_loss()
    disk.crash("all")
    assert mark(disk, "two").has_lost


def test_a_clean_stop_before_the_machine_stopped_loses_nothing(disk: SimDisk) -> None:
    mark(disk, "one").forget_loss()
    assert not mark(disk, "two", was_clean=True).has_lost


def test_a_loss_is_remembered_until_it_is_known_however_often_the_broker_restarts(disk: SimDisk) -> None:
    mark(disk, "one").forget_loss()
    assert mark(disk, "two").has_lost
    assert mark(disk, "two", was_clean=True).has_lost
    disk.crash("all")
    again = mark(disk, "three", was_clean=True)
    assert again.has_lost
    again.forget_loss()
    disk.crash("all")
    assert not mark(disk, "three").has_lost


def test_where_the_boot_is_not_known_every_unclean_stop_counts(disk: SimDisk) -> None:
    mark(disk, "").forget_loss()
    assert mark(disk, "").has_lost
