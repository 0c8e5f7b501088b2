"""Power fails at every disk operation of scripted workloads, in every way: nothing that was synced is lost."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from penstock.log import loading, removal, segment
from penstock.log.config import DAY_MS
from penstock.log.flush import FlushPlan
from penstock.testing.crashes import CrashEnumerator, CrashFound
from penstock.testing.log_machine import LogMachine
from penstock.testing.sim_disk import SimDisk

Workload = Callable[[LogMachine], None]


def append_and_roll(machine: LogMachine) -> None:
    machine.append()
    machine.append(2, producer=0)
    machine.flush()
    machine.append(3, producer=1)
    machine.append(1, producer=0)
    for number in range(12):
        machine.append(1 + number % 3, 40, producer=number % 3)
    machine.flush()
    machine.append()
    machine.roll()
    machine.append()
    machine.flush_closed()
    machine.new_epoch()
    machine.append(2)
    machine.checkpoint()
    machine.append(1, producer=2)
    machine.flush()
    machine.checkpoint()
    machine.append()


def truncate(machine: LogMachine) -> None:
    append_and_roll(machine)
    machine.truncate(20)
    machine.new_epoch()
    machine.append(2, producer=0)
    machine.append(2)
    machine.flush()
    machine.checkpoint()
    machine.truncate(3)
    machine.new_epoch()
    machine.append()
    for _ in range(10):
        machine.append(2, 60, producer=1)
    machine.flush()
    machine.truncate_fully(100)
    machine.append()
    machine.append(2, producer=1)
    machine.flush()
    machine.checkpoint()
    machine.truncate_fully(50)
    machine.append()
    machine.flush()


def forget_the_beginning(machine: LogMachine) -> None:
    append_and_roll(machine)
    machine.delete_records(4)
    machine.checkpoint()
    machine.retain(900)
    machine.append()
    machine.delete_records(machine.log.end_offset - 1)
    machine.retain(100_000)
    machine.checkpoint()
    machine.append()
    machine.retain(0)
    machine.append(2)
    machine.flush()


def restart(machine: LogMachine) -> None:
    append_and_roll(machine)
    machine.restart()
    machine.append(2, producer=0)
    machine.kill()
    machine.append()
    machine.checkpoint()
    machine.kill()
    machine.append(3, producer=1)
    machine.flush()
    machine.restart()
    machine.append()
    machine.truncate(5)
    machine.restart()
    machine.append(2)


def delete_and_make_again(machine: LogMachine) -> None:
    append_and_roll(machine)
    machine.checkpoint()
    machine.delete()
    machine.recreate()
    machine.append()
    machine.append(2, producer=0)
    machine.flush()
    machine.append()
    machine.checkpoint()
    machine.append()


def transactions(machine: LogMachine) -> None:
    machine.append(2, producer=0, transactional=True)
    machine.append(producer=1, transactional=True)
    machine.append()
    machine.flush()
    machine.end_transaction(0, is_commit=False)
    machine.append(3, 60, producer=0, transactional=True)
    machine.roll()
    machine.append(producer=1)
    machine.end_transaction(1, is_commit=True)
    machine.flush()
    machine.checkpoint()
    for number in range(12):
        machine.append(1 + number % 2, 50, producer=number % 3, transactional=True)
        if number % 3 == 2:
            machine.end_transaction(number // 3 % 3, is_commit=number % 2 == 0)
    machine.flush()
    machine.kill()
    machine.end_transaction(0, is_commit=False)
    machine.append(2, producer=0, transactional=True)
    machine.checkpoint()
    machine.restart()
    machine.append(producer=0)
    machine.truncate(machine.log.end_offset - 6)
    machine.new_epoch()
    machine.append(producer=1, transactional=True)
    machine.flush()
    machine.end_transaction(1, is_commit=False)
    machine.delete_records(8)
    machine.checkpoint()
    machine.retain(700)
    machine.append(producer=2, transactional=True)
    machine.flush()


def compact(machine: LogMachine) -> None:
    append_and_roll(machine)
    machine.roll()
    machine.flush()
    machine.checkpoint()
    machine.compact()
    machine.checkpoint()
    for number in range(10):
        machine.append(1 + number % 3, 50, producer=number % 3)
    machine.roll()
    machine.flush()
    machine.new_epoch()
    machine.append(2, producer=1)
    machine.compact(map_bytes=200)
    machine.append(3)
    machine.compact(map_bytes=200)
    machine.kill()
    machine.pass_time(2 * DAY_MS)
    machine.append()
    machine.roll()
    machine.append(2, producer=0)
    machine.flush()
    machine.compact()
    machine.delete_records(12)
    machine.restart()
    machine.truncate(machine.log.end_offset - 8)
    machine.new_epoch()
    machine.append(2)
    machine.roll()
    machine.flush()
    machine.compact()
    machine.append()


def compact_transactions(machine: LogMachine) -> None:
    for number in range(16):
        machine.append(1 + number % 2, 50, producer=number % 3, transactional=True)
        if number % 3 == 2:
            machine.end_transaction(number // 3 % 3, is_commit=number % 2 == 0)
    machine.roll()
    machine.flush()
    machine.compact()
    machine.append(2, 40, producer=1)
    for producer in range(3):
        machine.end_transaction(producer, is_commit=producer == 1)
    machine.roll()
    machine.append(1, producer=0)
    machine.flush()
    machine.compact()
    machine.pass_time(2 * DAY_MS)
    machine.append(2, producer=2)
    machine.roll()
    machine.flush()
    machine.compact()
    machine.restart()
    machine.pass_time(2 * DAY_MS)
    machine.append(2, producer=2, transactional=True)
    machine.roll()
    machine.flush()
    machine.compact()
    machine.append()


def cut_and_go_on(machine: LogMachine) -> None:
    for _ in range(4):
        machine.append()
    machine.flush()
    machine.truncate(2)
    machine.new_epoch()
    machine.append()


def let_old_segments_go(machine: LogMachine) -> None:
    for _ in range(4):
        machine.append()
        machine.roll()
    machine.flush()
    machine.retain(100)


WORKLOADS: list[Workload] = [
    append_and_roll,
    truncate,
    forget_the_beginning,
    restart,
    delete_and_make_again,
    transactions,
    compact,
    compact_transactions,
]


def anything(machine: LogMachine, chance: random.Random, steps: int) -> None:
    """A workload nobody thought of."""
    for _ in range(steps):
        end, start = machine.log.end_offset, machine.log.start_offset
        kind = chance.choices(
            [
                "append",
                "transaction",
                "end",
                "flush",
                "flush_closed",
                "checkpoint",
                "roll",
                "epoch",
                "truncate",
                "restart",
                "kill",
                "delete",
                "retain",
                "full",
                "compact",
                "time",
            ],
            [20, 10, 5, 5, 4, 5, 3, 3, 3, 2, 2, 2, 2, 1, 4, 1],
        )[0]
        if kind == "append":
            machine.append(chance.randrange(1, 4), chance.randrange(120), chance.choice([None, 0, 1, 2]))
        elif kind == "transaction":
            machine.append(chance.randrange(1, 4), chance.randrange(90), chance.randrange(3), transactional=True)
        elif kind == "end":
            machine.end_transaction(chance.randrange(3), is_commit=chance.random() < 0.4)
        elif kind == "epoch":
            machine.new_epoch()
        elif kind == "truncate" and end > start:
            machine.truncate(chance.randrange(start, end + 1))
            machine.new_epoch()
        elif kind == "full":
            machine.truncate_fully(chance.randrange(end + 50))
            machine.new_epoch()
        elif kind == "delete" and end > start:
            machine.delete_records(chance.randrange(start + 1, end + 1))
        elif kind == "retain":
            machine.retain(chance.randrange(2000))
        elif kind == "compact":
            machine.compact(chance.choice([100, 300, 1 << 16]))
        elif kind == "time":
            machine.pass_time(chance.randrange(2 * DAY_MS))
        elif kind in ("flush", "flush_closed", "checkpoint", "roll", "restart", "kill"):
            getattr(machine, kind)()


def enumerate_crashes(workload: Workload, **options: int) -> CrashEnumerator:
    disk = SimDisk()
    machine = LogMachine(disk)
    crashes = CrashEnumerator(disk, machine.check, **options)
    workload(machine)
    crashes.finish()
    return crashes


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_a_sample_of_the_crashes_of_every_workload(workload: Workload) -> None:
    crashes = enumerate_crashes(workload, stride=9, losses_max=6)
    assert crashes.crashes > 50


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_every_crash_of_every_workload(workload: Workload) -> None:
    crashes = enumerate_crashes(workload, subsets=3)
    assert crashes.crashes > 3000


def test_crashes_of_a_random_workload() -> None:
    enumerate_crashes(lambda machine: anything(machine, random.Random(7), 40), stride=11, losses_max=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_crashes_of_many_random_workloads(seed: int) -> None:
    enumerate_crashes(
        lambda machine: anything(machine, random.Random(seed), 60), seed=seed, stride=3, losses_max=8, subsets=4
    )


def test_a_flush_that_does_not_sync_its_folder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = FlushPlan._run

    def forgetful(plan: FlushPlan) -> None:
        plan.sync_folder = False
        run(plan)

    monkeypatch.setattr(FlushPlan, "_run", forgetful)
    with pytest.raises(CrashFound, match="synced batches are lost"):
        enumerate_crashes(append_and_roll, losses_max=4)


def test_a_recovery_that_takes_holes_for_granted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.Loader, "_goes_on", lambda self, index: True)
    with pytest.raises(CrashFound):
        enumerate_crashes(append_and_roll)


def test_a_cut_that_is_not_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(self: segment.Segment, position: int) -> None:
        next_offset = self.next_offset_at(position)
        self.open_file().truncate(position)
        self.size_bytes, self.next_offset = position, next_offset
        self._forget_recent()
        self._cut_indexes(position, next_offset)

    monkeypatch.setattr(segment.Segment, "cut", cut)
    with pytest.raises(CrashFound):
        enumerate_crashes(cut_and_go_on)


def test_retention_that_removes_without_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove_at_once(files: removal.FileCache, folder: str, base_offsets: list[int]) -> None:
        for base_offset in base_offsets:
            removal.mark_deleted(files, f"{folder}/{base_offset:020d}")

    monkeypatch.setattr("penstock.log.partition_log.remove_segments", remove_at_once)
    with pytest.raises(CrashFound):
        enumerate_crashes(let_old_segments_go, losses_max=40, stride=3)
