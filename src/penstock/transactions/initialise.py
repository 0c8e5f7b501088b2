"""InitProducerId: a producer takes a transactional id over, or goes on with it after an error.

A producer that takes over names nobody: it gets the next epoch, and whoever had the id is fenced. One that goes on
names its producer id and epoch, and gets the next epoch only if it still is the producer of this id. If its first
request was answered and the answer got lost, it names the epoch before the current one, and gets the current one.

While a transaction is open it is aborted first, and the producer has to ask again. Kafka lets any epoch of the same
producer id do that; here only the current one can, so that a request that comes late does nothing.
"""

from __future__ import annotations

from penstock.base.errors import Error
from penstock.base.steps import ProducerEpoch
from penstock.transactions.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    PREPARED_STATES,
    Transaction,
    is_exhausted,
)


def initialise(
    current: Transaction, named: ProducerEpoch | None, new_producer_id: int | None, timeout_ms: int, now_ms: int
) -> Transaction | Error:
    """What becomes of the id. If that is the end of a transaction, the producer has to ask again."""
    if named is not None and not _is_known(current, named):
        return Error.PRODUCER_FENCED
    if current.state in PREPARED_STATES:
        return Error.CONCURRENT_TRANSACTIONS
    if current.is_ongoing:
        if named is not None and named != current.producer:
            return Error.PRODUCER_FENCED
        return current.ending(is_commit=False, now_ms=now_ms)
    return _next_producer(current, named, new_producer_id, timeout_ms, now_ms)


def first_producer(
    transactional_id: str, new_producer_id: int | None, timeout_ms: int, now_ms: int
) -> Transaction | Error:
    """An id that nobody has used."""
    if new_producer_id is None:
        return Error.CONCURRENT_TRANSACTIONS
    return Transaction(
        transactional_id=transactional_id,
        producer_id=new_producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        last_update_ms=now_ms,
        previous_producer_id=new_producer_id,
    )


def _is_known(current: Transaction, named: ProducerEpoch) -> bool:
    """The producer of now, or the one before it, whose epochs were used up."""
    return named.producer_id == current.producer_id or (
        named.producer_id == current.previous_producer_id and is_exhausted(named.producer_epoch)
    )


def _next_producer(
    current: Transaction, named: ProducerEpoch | None, new_producer_id: int | None, timeout_ms: int, now_ms: int
) -> Transaction | Error:
    epoch = current.producer_epoch
    fenced_with_last = epoch == EPOCH_MAX and named is not None and named.producer_epoch == epoch - 1
    if current.is_exhausted and (named is None or named.producer_epoch == epoch or fenced_with_last):
        if new_producer_id is None:
            return Error.CONCURRENT_TRANSACTIONS
        last_epoch = NO_EPOCH if named is None else named.producer_epoch
        return current.with_producer(ProducerEpoch(new_producer_id, 0), last_epoch, timeout_ms, now_ms)
    if named is None:
        return current.with_producer(ProducerEpoch(current.producer_id, epoch + 1), NO_EPOCH, timeout_ms, now_ms)
    if named.producer_epoch == epoch and named.producer_id == current.producer_id:
        return current.with_producer(ProducerEpoch(current.producer_id, epoch + 1), epoch, timeout_ms, now_ms)
    if named.producer_epoch == current.last_producer_epoch != NO_EPOCH:
        # asked before, and the answer got lost
        return current.with_producer(current.producer, current.last_producer_epoch, timeout_ms, now_ms)
    return Error.PRODUCER_FENCED
