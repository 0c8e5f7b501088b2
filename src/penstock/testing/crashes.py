"""The crash enumerator: a workload on a simulated disk is stopped before every disk operation, and after the last.

At each such point power may fail. What was synced survives; of the rest anything may: all of it, nothing, all but one
change, one change alone, any subset, and the last write torn. Every combination is a disk of its own, which the
workload's check looks at while the workload itself goes on undisturbed. So one run tries every point.

    crashes = CrashEnumerator(disk, check, seed=1, subsets=4)
    workload(disk)
    crashes.finish()
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.testing.sim_disk import Operation, SimDisk
from penstock.testing.sim_files import Change, Write


@dataclass(frozen=True, slots=True)
class Loss:
    """What one power failure takes: these changes, and the end of the last write that survives."""

    what: str
    lost: frozenset[int]
    torn: int | None = None


class CrashFound(AssertionError):
    """A crash after which the check did not hold; the text says how to see it again."""


def losses(pending: list[Change], chance: random.Random, subsets: int) -> Iterator[Loss]:
    """The ways in which power may fail while these changes are not durable."""
    numbers = [change.number for change in pending]
    everything = frozenset(numbers)
    yield Loss("nothing lost", frozenset())
    if not pending:
        return
    yield Loss("everything lost", everything)
    for change in pending:
        if len(pending) > 1:
            yield Loss(f"only {change} lost", frozenset({change.number}))
            yield Loss(f"only {change} kept", everything - {change.number})
    for _ in range(subsets if len(pending) > 2 else 0):
        lost = frozenset(number for number in numbers if chance.random() < 0.5)
        yield Loss(f"{sorted(lost)} lost", lost)
    yield from _torn(pending, chance, subsets)


def _torn(pending: list[Change], chance: random.Random, subsets: int) -> Iterator[Loss]:
    writes = [change for change in pending if isinstance(change, Write)]
    if not writes:
        return
    last = writes[-1]
    size = len(last.data)
    for torn in sorted({0, 1, size // 2, size - 1, *(chance.randrange(size) for _ in range(subsets))} - {size}):
        yield Loss(f"{last} torn after {torn} bytes", frozenset(), torn)


@dataclass(slots=True)
class CrashEnumerator:
    """Watches a disk and tries every crash, or every `stride`th point of them."""

    disk: SimDisk
    check: Callable[[SimDisk], None]
    seed: int = 0
    subsets: int = 2
    stride: int = 1
    losses_max: int | None = None
    points: int = 0
    crashes: int = 0
    _chance: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._chance = random.Random(f"crashes {self.seed}")
        self.disk.device.before_operation = self._before

    def _before(self, operation: Operation) -> None:
        self.points += 1
        if self.points % self.stride == 0:
            self._try_all(f"before {operation}")

    def finish(self) -> None:
        """Try the point after the last operation, and stop watching."""
        self.disk.device.before_operation = None
        self._try_all("after the last operation")

    def _try_all(self, point: str) -> None:
        found = list(losses(self.disk.pending(), self._chance, self.subsets))
        if self.losses_max is not None and len(found) > self.losses_max:
            found = found[:2] + self._chance.sample(found[2:], self.losses_max - 2)
        for loss in found:
            self.crashes += 1
            after = self.disk.after_crash(lost=loss.lost, torn=loss.torn)
            try:
                self.check(after)
            except Exception as error:
                raise CrashFound(f"{point}, {loss.what} (seed {self.seed}): {type(error).__name__}: {error}") from error
