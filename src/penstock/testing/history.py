"""What clients of a run were told, and whether the log that is left agrees with it.

Producers note each batch they send and each acknowledgement, consumers each batch they see. At the end the log is read
and judged: a batch that was acknowledged is there, at its offset, byte for byte; nothing is there twice; each
producer's batches are in the order in which they were sent; nobody saw anything that is not in the log; and nothing is
in the log that nobody sent.

Where a loss is allowed (a power failure without syncs), the test says so with `loss`: what was acknowledged or seen on
a request sent before it, at or after the offset where the log ended then, is no longer asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.identifiers import TopicPartition
from penstock.testing.sim_client import StoredBatch
from penstock.wire.batch import CRC_OFFSET


class BatchName(NamedTuple):
    """Who sent a batch, and the how-manieth of that producer it is."""

    producer: str
    number: int


@dataclass(frozen=True, slots=True)
class Told:
    """A client was told that a batch is at an offset; it had asked at `asked_s`."""

    offset: int
    body: bytes
    asked_s: float
    who: str


class Loss(NamedTuple):
    """At this time everything from an offset on was lost, and that is allowed."""

    time_s: float
    end_offset: int


@dataclass(slots=True)
class PartitionHistory:
    """Everything about one partition."""

    sent: dict[bytes, BatchName] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


def body_of(batch: bytes) -> bytes:
    """The part of a batch that the broker does not fill in: from the checksum on."""
    return bytes(batch[CRC_OFFSET:])


class History:
    """See the head of this file."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionHistory] = {}
        self.problems: list[str] = []
        self.acknowledged = 0
        self.seen = 0

    def _of(self, partition: TopicPartition) -> PartitionHistory:
        return self._partitions.setdefault(partition, PartitionHistory())

    def sending(self, partition: TopicPartition, name: BatchName, batch: bytes) -> None:
        """A producer is about to send a batch, for the first time or again."""
        known = self._of(partition).sent.setdefault(body_of(batch), name)
        assert known == name, f"{known} and {name} sent the same bytes"

    def acked(self, partition: TopicPartition, name: BatchName, batch: bytes, offset: int, asked_s: float) -> None:
        self.acknowledged += 1
        who = f"{name.producer} was told of its batch {name.number}"
        self._of(partition).told.append(Told(offset, body_of(batch), asked_s, who))

    def saw(self, partition: TopicPartition, consumer: str, batch: StoredBatch, asked_s: float) -> None:
        self.seen += 1
        told = Told(batch.header.base_offset, body_of(batch.content), asked_s, f"{consumer} saw")
        self._of(partition).told.append(told)

    def loss(self, partition: TopicPartition, time_s: float, end_offset: int) -> None:
        """Allow that everything from this offset on was lost at that time."""
        self._of(partition).losses.append(Loss(time_s, end_offset))

    def last_told_offset(self, partition: TopicPartition) -> int:
        """The largest offset of which anybody was told, -1 if nobody was told anything."""
        return max((told.offset for told in self._of(partition).told), default=-1)

    def check(self, partition: TopicPartition, log: Iterable[StoredBatch]) -> list[str]:
        """Everything that is wrong with the log, in words."""
        history = self._of(partition)
        at_offset = {batch.header.base_offset: body_of(batch.content) for batch in log}
        problems = list(_order_problems(at_offset, history.sent))
        for told in history.told:
            if any(told.asked_s <= loss.time_s and told.offset >= loss.end_offset for loss in history.losses):
                continue
            found = at_offset.get(told.offset)
            if found is None:
                problems.append(f"lost: {told.who} at offset {told.offset}")
            elif found != told.body:
                problems.append(f"changed: {told.who} at offset {told.offset}, now {history.sent.get(found)}")
        return [f"{partition}: {problem}" for problem in problems]


def _order_problems(at_offset: dict[int, bytes], sent: dict[bytes, BatchName]) -> Iterable[str]:
    last: dict[str, int] = {}
    found: set[BatchName] = set()
    for offset, body in sorted(at_offset.items()):
        name = sent.get(body)
        if name is None:
            yield f"nobody sent what is at offset {offset}"
            continue
        if name in found:
            yield f"duplicate: {name} again at offset {offset}"
        elif name.number < last.get(name.producer, -1):
            yield f"out of order: {name} at offset {offset} comes after {last[name.producer]}"
        found.add(name)
        last[name.producer] = max(name.number, last.get(name.producer, -1))
