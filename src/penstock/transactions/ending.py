"""From the decision how transactions end to the markers in their partitions, and to the record that says: complete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch, Step
from penstock.transactions.transaction import State, Transaction


class Marker(NamedTuple):
    """The end of one transaction, to be written into each of its partitions."""

    transactional_id: str
    producer: ProducerEpoch
    is_commit: bool
    protocol: int
    partitions: frozenset[TopicPartition]


class WriteMarkers(NamedTuple):
    """An action: write all of these, and tell the machine by `markers_written`, as they are done."""

    markers: tuple[Marker, ...]
    coordinator_epoch: int


def marker_of(transaction: Transaction) -> Marker:
    return Marker(
        transaction.transactional_id,
        transaction.producer,
        transaction.state is State.PREPARE_COMMIT,
        transaction.protocol,
        transaction.partitions,
    )


def ending_step(decided: Iterable[Transaction], coordinator_epoch: int, now_ms: int) -> Step:
    """The step of transactions of which it has been decided how they end."""
    decided = list(decided)
    step = Step(records=[each.record() for each in decided])
    return step.and_then(markers_step(decided, coordinator_epoch, now_ms))


def markers_step(decided: Iterable[Transaction], coordinator_epoch: int, now_ms: int) -> Step:
    """What follows from such a decision. A transaction that wrote nowhere needs no markers and is complete at once."""
    step = Step()
    markers = []
    for transaction in decided:
        if transaction.partitions:
            markers.append(marker_of(transaction))
        else:
            step.records.append(transaction.completed(now_ms).record())
    if markers:
        step.actions.append(WriteMarkers(tuple(markers), coordinator_epoch))
    return step
