"""One transactional id: which producer has it, and how far its transaction is.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──┐
      ▲          │                                           │ the next transaction, or a new producer
      │          └──────► PrepareAbort ───► CompleteAbort ───┤
      └──────────────────────────────────────────────────────┘

A `Transaction` never changes: every step makes a new one, which becomes a record of the log and only then counts.
*Prepare* is the decision; from there the transaction ends as decided, whatever happens. It is *complete* when every
partition has its marker.

Epochs: the producer of the first protocol keeps its epoch until another one takes the id over. The second protocol (2,
KIP-890) gives it a new epoch at the end of every transaction, so that what arrives late cannot touch the next one.
Whatever this broker ends by itself it ends in that way. The highest epoch is never given to anybody: it is what a
producer of the epoch before it is fenced with. After that the id gets a new producer id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch, StateRecord
from penstock.wire.messages.transaction_topic_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionLogValuePartitionsSchema,
)

EPOCH_MAX = 32767
NO_PRODUCER = -1
NO_EPOCH = -1
NO_TIME = -1
FIRST_PROTOCOL = 0
SECOND_PROTOCOL = 2
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class State(IntEnum):
    """The numbers are those of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As Kafka writes it: PrepareCommit."""
        return self.name.title().replace("_", "")


PREPARED_STATES = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
STATE_OF_LABEL = {state.label: state for state in State}


class Batch(NamedTuple):
    """What a transaction was prepared for: the number to be committed, and the run of the client that works on it."""

    number: int
    run: int


NO_BATCH = Batch(-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """See the head of this file."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER
    """the producer id before the last step"""
    next_producer_id: int = NO_PRODUCER
    """the producer id once the transaction is complete, if that is another one"""
    last_producer_epoch: int = NO_EPOCH
    """the epoch before the current one, if the producer of that epoch may ask again for the current one"""
    protocol: int = FIRST_PROTOCOL
    batch: Batch = NO_BATCH
    """what it was prepared for by its client, if it was"""

    @property
    def producer(self) -> ProducerEpoch:
        return ProducerEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_ongoing(self) -> bool:
        return self.state is State.ONGOING

    @property
    def is_prepared(self) -> bool:
        """By its client, for a commit together with others; not to be confused with the states of the same name."""
        return self.is_ongoing and self.batch != NO_BATCH

    @property
    def is_exhausted(self) -> bool:
        """The producer id has no epoch left that could be given to a producer."""
        return is_exhausted(self.producer_epoch)

    # ── the steps ────────────────────────────────────────────────────────────────────────────────────────────────

    def with_producer(self, producer: ProducerEpoch, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """The id is a producer's, with no transaction."""
        return Transaction(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
            previous_producer_id=self.producer_id,
            last_producer_epoch=last_epoch,
            protocol=self.protocol,
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], protocol: int, now_ms: int) -> Transaction:
        """The transaction goes on, or begins, with more partitions."""
        return replace(
            self,
            state=State.ONGOING,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.is_ongoing else now_ms,
            last_update_ms=now_ms,
            previous_producer_id=self.producer_id,
            protocol=protocol,
        )

    def prepared_for(self, batch: Batch, now_ms: int) -> Transaction:
        """Nothing more is to be written, and the commit comes together with that of others."""
        assert self.is_ongoing
        return replace(self, batch=batch, last_update_ms=now_ms)

    def ending(
        self, *, is_commit: bool, now_ms: int, protocol: int = SECOND_PROTOCOL, next_producer_id: int = NO_PRODUCER
    ) -> Transaction:
        """It is decided how the transaction ends."""
        bump = protocol >= SECOND_PROTOCOL
        assert not bump or self.producer_epoch < EPOCH_MAX
        return replace(
            self,
            state=State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1 if bump else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bump else self.last_producer_epoch,
            start_ms=self.start_ms if self.is_ongoing else now_ms,
            last_update_ms=now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            protocol=protocol,
            batch=NO_BATCH,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        assert self.state in PREPARED_STATES
        is_next = self.next_producer_id != NO_PRODUCER
        is_commit = self.state is State.PREPARE_COMMIT
        return replace(
            self,
            state=State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT,
            producer_id=self.next_producer_id if is_next else self.producer_id,
            producer_epoch=0 if is_next else self.producer_epoch,
            partitions=NO_PARTITIONS,
            last_update_ms=now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER,
        )

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def record(self) -> StateRecord:
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is State.EMPTY else _by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.protocol,
            last_producer_epoch=self.last_producer_epoch,
            prepared_number=self.batch.number,
            prepared_run=self.batch.run,
        )
        return StateRecord(TransactionLogKey(transactional_id=self.transactional_id), value)

    @classmethod
    def of_record(cls, transactional_id: str, value: TransactionLogValue) -> Transaction:
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            last_update_ms=value.transaction_last_update_timestamp_ms,
            state=State(value.transaction_status),
            partitions=frozenset(
                TopicPartition(each.topic, index)
                for each in value.transaction_partitions or ()
                for index in each.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            last_producer_epoch=value.last_producer_epoch,
            protocol=value.client_transaction_version,
            batch=Batch(value.prepared_number, value.prepared_run),
        )


def is_exhausted(epoch: int) -> bool:
    """The epoch after this one is the last, and is for fencing."""
    return epoch >= EPOCH_MAX - 1


def _by_topic(partitions: frozenset[TopicPartition]) -> list[TransactionLogValuePartitionsSchema]:
    indexes: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        indexes.setdefault(topic, []).append(index)
    return [TransactionLogValuePartitionsSchema(topic=topic, partition_ids=found) for topic, found in indexes.items()]
