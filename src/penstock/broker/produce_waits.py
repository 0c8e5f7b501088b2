"""Produces that are appended and wait for their replicas, on the short way.

A producer's request that is like the one before it (`_produce_again.py`) has its answer made when it is appended. Until
the records are committed it is one small object: the place of the answer in the connection's order, and what the
partition calls back. There is no timer for each: one sweep finds those whose time is over, a little late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.base.errors import Error
from penstock.base.world import Clock
from penstock.broker.connection import Connection, Response, Slot
from penstock.broker.partition import Partition
from penstock.broker.request_counts import ApiCounts

SWEEP_S = 0.5


def told_after_append(error: Error) -> Error:
    """What a producer is told whose records are in the log, when that cannot be committed here any more.

    "Not the leader" would mean to clients that nothing was written; but it may have been.
    """
    return Error.REQUEST_TIMED_OUT if error is Error.NOT_LEADER_OR_FOLLOWER else error


class ProduceWaits:
    """All of them, of one broker."""

    def __init__(self, clock: Clock, counts: ApiCounts) -> None:
        self.monotonic = clock.monotonic
        self.counts = counts
        self._waits: dict[ProduceWait, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: ProduceWait) -> None:
        self._waits[wait] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def remove(self, wait: ProduceWait) -> None:
        del self._waits[wait]

    def _sweep(self) -> None:
        now_s = self.monotonic()
        late: dict[Partition, dict[ProduceWait, None]] = {}
        for wait in self._waits:
            if wait.give_up_s <= now_s:
                late.setdefault(wait.way.partition, {})[wait] = None
        for partition, waits in late.items():
            partition.forget_commit_waits(waits)
            for wait in waits:
                wait(Error.REQUEST_TIMED_OUT)
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep) if self._waits else None


class ProduceWay:
    """What the produces of one producer to one partition have in common, while they wait."""

    __slots__ = ("connection", "partition", "refusal", "timeout_s", "waits")

    def __init__(
        self,
        waits: ProduceWaits,
        connection: Connection,
        partition: Partition,
        timeout_ms: int,
        refusal: Callable[[int, Error], Response],
    ) -> None:
        """`refusal` makes the answer with an error, for a correlation id."""
        self.waits = waits
        self.connection = connection
        self.partition = partition
        self.timeout_s = max(0, timeout_ms) / 1000
        self.refusal = refusal

    def begin(self, answer: bytes, end_offset: int) -> None:
        """Give this answer when everything below an offset is committed."""
        waits = self.waits
        wait = ProduceWait(self, answer, waits.monotonic())
        self.connection.add_slot(wait)
        self.partition.when_committed(end_offset, wait)
        waits.add(wait)


class ProduceWait(Slot):
    """One request."""

    __slots__ = ("answer", "give_up_s", "way")

    def __init__(self, way: ProduceWay, answer: bytes, now_s: float) -> None:
        self.is_filled = False
        self.response = None
        self.on_cancel = None
        self.counts = way.waits.counts
        self.started_s = now_s
        self.way = way
        self.answer = answer
        self.give_up_s = now_s + way.timeout_s

    def __call__(self, error: Error) -> None:
        """The records are committed, or nobody can tell any more."""
        way = self.way
        way.waits.remove(self)
        if error is Error.NONE:
            way.connection.fill_soon(self, self.answer)
        else:
            told = told_after_append(error)
            way.waits.counts.refused(told)
            correlation_id = int.from_bytes(self.answer[4:8], "big", signed=True)
            way.connection.fill_soon(self, way.refusal(correlation_id, told))
