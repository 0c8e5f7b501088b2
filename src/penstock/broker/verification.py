"""What a partition remembers between asking a transaction's coordinator and the first append of the transaction.

A batch that opens a transaction in a partition is appended only after the coordinator has said that the partition
belongs to that transaction. Otherwise a batch that comes late, after its transaction has ended, would open one that
nobody ends, and readers of committed records would wait for ever.

Between the question and the append the transaction may end as well. So the question leaves a `Verification` with the
partition, the marker takes it away, and a batch is appended only if its own one is still there: that of a later
transaction of the same producer is another object (KIP-890). Nothing of this is on disk: after a restart the first
batch of a producer without an open transaction is verified again.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.steps import ProducerEpoch
from penstock.log.producers import ProducerStates
from penstock.wire.batch import BatchHeader

VERIFICATIONS_MAX = 10_000  # of one partition; the oldest go first


class Verification:
    """One question to the coordinator. Batches of the same producer that come while it is open share it.

    It knows the lowest sequence that waits for it: when that batch has to be sent again, a later one must not go first.
    """

    __slots__ = ("epoch", "is_add", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, *, is_add: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.is_add = is_add  # the answer adds the partition to the transaction: a client of the second protocol

    def take(self, epoch: int, sequence: int) -> None:
        """Another batch waits for the same answer."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Verifications:
    """Those of one partition, by producer."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(
        self, producers: ProducerStates, producer: ProducerEpoch, sequence: int, *, is_add: bool
    ) -> Verification | None:
        """Before the coordinator is asked; None if it need not be, because the transaction is open here already."""
        producer_id, epoch = producer
        producers.check_epoch(producer_id, epoch)
        if producers.is_open(producer_id, epoch):
            return None
        found = self._by_producer.get(producer_id)
        if found is not None:
            found.take(epoch, sequence)
            return found
        if len(self._by_producer) >= VERIFICATIONS_MAX:
            del self._by_producer[next(iter(self._by_producer))]
        made = self._by_producer[producer_id] = Verification(epoch, sequence, is_add=is_add)
        return made

    def check(
        self, producers: ProducerStates, producer: ProducerEpoch, verification: Verification | None, *, is_needed: bool
    ) -> None:
        """ApiError unless records of a producer's transaction may be appended now, with what was verified for them."""
        producer_id, epoch = producer
        if producers.is_open(producer_id, epoch):
            return
        producers.check_epoch(producer_id, epoch)
        if is_needed and (verification is None or self._by_producer.get(producer_id) is not verification):
            raise ApiError(Error.INVALID_TXN_STATE, "the record does not belong to a transaction that is open")

    def check_sequence(self, producers: ProducerStates, header: BatchHeader) -> None:
        """ApiError if a batch may not be the first one of its transaction here."""
        found = self._by_producer.get(header.producer_id)
        if found is None:
            return
        sequence = header.base_sequence
        state = producers.get(header.producer_id)
        if found.is_add and sequence != 0 and (state is None or not state.batches):
            raise ApiError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins with sequence {sequence}, not 0",
            )
        if sequence > found.lowest_sequence:
            raise ApiError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {sequence} of producer {header.producer_id} comes before {found.lowest_sequence}",
            )

    def forget(self, producer_id: int) -> None:
        """The transaction is open now, or it has ended."""
        self._by_producer.pop(producer_id, None)

    def refuse(self, producer: ProducerEpoch) -> None:
        """The coordinator does not know the transaction. A newer epoch of the producer, if one asks too, goes on."""
        found = self._by_producer.get(producer.producer_id)
        if found is not None and found.epoch <= producer.producer_epoch:
            del self._by_producer[producer.producer_id]
