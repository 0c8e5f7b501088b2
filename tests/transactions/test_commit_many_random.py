"""Random drivers and tasks that commit batches as one, with zombies, late requests, timeouts and crashes.

Whatever happens: what one commit names is committed wholly or not at all, and as it was answered; of each number one
commit counts; nothing is committed that nobody asked for; nothing stays open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.transactions.names import id_of_member
from penstock.transactions.settings import TransactionSettings

from .rig import Rig, Waiting

NAME = "query"
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
MEMBERS = 4
QUICK = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
THOROUGH = settings(max_examples=5_000, deadline=None, suppress_health_check=list(HealthCheck))
OPERATIONS = (
    *("run", "announce", "again", "late", "marker", "crash", "time"),
    *(["task"] * 5),
    *(["prepare"] * 6),
    *(["commit"] * 3),
)
LAZY_LOG, LAZY_MARKERS = (1, 3), (2, 3)


@dataclass
class Task:
    """One attempt, with its transaction."""

    tag: tuple[int, int]
    member: str
    producer: ProducerEpoch
    is_prepared: bool = False


@dataclass
class Run:
    """A driver that works on one batch."""

    number: int
    run: int
    tasks: list[Task] = field(default_factory=list)
    committing: list[Task] | None = None
    answers: list[Waiting] = field(default_factory=list)


class World:
    def __init__(self) -> None:
        timing = TransactionSettings(timeout_check_interval_ms=1000, prepared_timeout_ms=300_000)
        self.rig = Rig(timing, is_at_once=False)
        self.runs: list[Run] = []
        self.begin()

    def begin(self) -> None:
        """The next batch, if the last one is known to be committed; otherwise the same one again."""
        number = 0
        if self.runs:
            last = self.runs[-1]
            is_told = any(each.answers and each.answer.error_code == Error.NONE for each in last.answers)
            number = last.number + 1 if is_told else last.number
        self.runs.append(Run(number, len(self.runs)))

    def open_task(self, run: Run, index: int) -> None:
        if run.committing is not None:
            return
        member = f"{index % MEMBERS}/{run.run % 2}"
        transactional_id = id_of_member(NAME, member)
        rig = self.rig
        waiting = rig.init(transactional_id)
        rig.commit()
        if waiting.answer.error_code != Error.NONE:
            return
        producer = ProducerEpoch(waiting.answer.producer_id, waiting.answer.producer_epoch)
        names = PARTITIONS[index % 2 : index % 2 + 2]
        added = rig.add(transactional_id, producer, *names, is_new=True)
        rig.commit()
        if added.answer is Error.NONE:
            task = Task((run.run, len(run.tasks)), member, producer)
            run.tasks.append(task)
            for name in names:
                assert rig.append(name, producer, task.tag)

    def prepare(self, run: Run, index: int) -> None:
        tasks = [task for task in run.tasks if not task.is_prepared]
        if tasks and run.committing is None:
            task = tasks[index % len(tasks)]
            waiting = self.rig.prepare(NAME, run.number, run.run, (task.member, task.producer))
            self.rig.commit()
            task.is_prepared = waiting.answer.error_code == Error.NONE

    def commit(self, run: Run) -> None:
        """Those that were prepared, the last attempt of each member; sent again it is the same request."""
        if run.committing is None:
            run.committing = list({task.member: task for task in run.tasks if task.is_prepared}.values())
        named = [(task.member, task.producer) for task in run.committing]
        run.answers.append(self.rig.commit_many(NAME, run.number, named))


def operations_of(data: bytes) -> Iterator[tuple[str, int, int, int]]:
    for what, who, lazy in zip(data[::3], data[1::3], data[2::3], strict=False):
        yield OPERATIONS[what % len(OPERATIONS)], who % 6, who // 6 % 6, lazy % 6


def run_all(world: World, data: bytes) -> None:
    rig = world.rig
    for operation, first, second, lazy in operations_of(data):
        run = world.runs[-1 - (first // 5) % min(2, len(world.runs))]
        if operation == "run" or (operation == "task" and run.committing is not None):
            world.begin()
        elif operation == "announce" and second < 2:
            rig.prepare(NAME, run.number, run.run)
        elif operation == "task":
            world.open_task(run, second)
        elif operation == "prepare":
            world.prepare(run, second)
        elif operation == "commit" and (second == 0 or any(task.is_prepared for task in run.tasks)):
            world.commit(run)
        elif operation in ("again", "late"):
            old = world.runs[(6 * first + second) % len(world.runs)]
            if old.committing is not None:
                world.commit(old)
        elif operation == "marker":
            rig.write_markers(1 + second)
        elif operation == "crash":
            if second % 2:
                rig.compact()
            rig.crash(len(rig.batches) - first)
        elif operation == "time":
            rig.pass_time(10_000 * (1 + second))
        if lazy not in LAZY_LOG:
            rig.commit()
            if lazy not in LAZY_MARKERS:
                rig.settle()


def judge(world: World) -> None:
    rig = world.rig
    rig.settle()
    rig.pass_time(1_000_000)
    rig.settle()
    fates = rig.fates()
    assert all(len(each) == 1 and each != {"open"} for each in fates.values()), fates
    committed = {tag for tag, each in fates.items() if each == {"committed"}}
    counted: dict[int, int] = {}
    for run in world.runs:
        tags = {task.tag for task in run.committing or ()}
        assert tags & committed in (set(), tags), f"run {run.run} is committed in part"
        if tags & committed:
            assert counted.setdefault(run.number, run.run) == run.run, f"number {run.number} counts twice"
        for waiting in run.answers:
            if waiting.answers and waiting.answer.error_code == Error.NONE and not waiting.answer.already_committed:
                assert tags <= committed, f"run {run.run} was told that it is committed"
            elif waiting.answers and waiting.answer.already_committed and not tags & committed:
                assert {fate for tag in tags for fate in fates[tag]} <= {"aborted"}
        asked = {task.tag for task in run.committing or ()}
        assert {task.tag for task in run.tasks} & committed <= asked, "nobody asked for it"


def check(data: bytes) -> World:
    world = World()
    run_all(world, data)
    judge(world)
    return world


@QUICK
@given(st.binary(min_size=60, max_size=300))
def test_random_batches(data: bytes) -> None:
    check(data)


@pytest.mark.slow
@THOROUGH
@given(st.binary(min_size=60, max_size=300))
def test_many_random_batches(data: bytes) -> None:
    check(data)
