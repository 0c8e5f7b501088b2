"""What a machine whose state lives in a log decides: a step.

A decision reads the machine's state and returns a `Step`; it changes nothing that is kept. The shell appends the
step's records to the machine's partition as one batch, has the machine `replay` each of them, and gives the answers
when they are committed (and with them everything that was appended before). Starting again is the same replay.

What is not kept, such as who waits for a rebalance and when a session ends, a decision may change at once: after a
restart it is as if everybody had just been heard of.

A token stands for one request that is not answered yet. The machine keeps it as long as it likes and never looks
inside; giving it an answer in some later step is how a request waits.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

Token: TypeAlias = Hashable


class Moment(NamedTuple):
    """Now, by both clocks: the first for how long things take, the second for what is written down."""

    monotonic_ms: int
    wall_ms: int


class ProducerEpoch(NamedTuple):
    """A producer, in one of its lives."""

    producer_id: int
    producer_epoch: int


class StateRecord(NamedTuple):
    """What one record says: a key message and a value message, or no value where the key's state is deleted."""

    key: Any
    value: Any | None


@dataclass(slots=True)
class Step:
    """One decision."""

    records: list[StateRecord] = field(default_factory=list)
    answers: list[tuple[Token, Any]] = field(default_factory=list)
    """(whose request, the response message), given once the records are committed"""
    actions: list[Any] = field(default_factory=list)
    """what else is to be done once the records are committed; the machine's own shell knows how"""
    producer: ProducerEpoch | None = None
    """the records belong to the open transaction of this producer, and count when it commits"""

    def and_then(self, other: Step) -> Step:
        """Both, as one."""
        assert self.producer == other.producer or not (self.records and other.records)
        self.records += other.records
        self.answers += other.answers
        self.actions += other.actions
        self.producer = self.producer or other.producer
        return self
