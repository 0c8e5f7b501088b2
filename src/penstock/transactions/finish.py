"""EndTxn: how a producer ends its transaction, and what a request gets that comes again.

In the first protocol the epoch stays, so a request of the current epoch that finds the transaction complete can only
be taken for a repeated one. In the second the epoch is another one after every end, and tells:

    |                | abort            | commit           |      repeated: of the epoch before the current one
    |                | repeated current | repeated current |      next:     ended, with the next epoch
    | Empty          | fenced   next    | fenced   invalid |
    | CompleteAbort  | done     next    | invalid  invalid |
    | CompleteCommit | invalid  next    | done     invalid |

An abort with nothing to abort is right in the second protocol: the producer does not know whether its first batch
arrived, and the new epoch keeps that batch out if it is still on its way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from penstock.base.errors import Error
from penstock.base.steps import ProducerEpoch
from penstock.transactions.names import member_of
from penstock.transactions.transaction import (
    EPOCH_MAX,
    FIRST_PROTOCOL,
    NO_PRODUCER,
    PREPARED_STATES,
    SECOND_PROTOCOL,
    State,
    Transaction,
)


class Finish(NamedTuple):
    """The answer to an EndTxn, and what becomes of the transaction if anything does."""

    error: Error
    changed: Transaction | None = None


def finish_first_protocol(current: Transaction, producer: ProducerEpoch, *, is_commit: bool, now_ms: int) -> Finish:
    """A producer that keeps its epoch."""
    if producer.producer_id != current.producer_id:
        return Finish(Error.INVALID_PRODUCER_ID_MAPPING)
    if producer.producer_epoch != current.producer_epoch:
        return Finish(Error.PRODUCER_FENCED)
    if current.is_ongoing:
        if is_commit and member_of(current.transactional_id) is not None:
            return Finish(Error.INVALID_TXN_STATE)
        return Finish(Error.NONE, current.ending(is_commit=is_commit, now_ms=now_ms, protocol=FIRST_PROTOCOL))
    return Finish(_repeated(current, is_commit=is_commit))


def finish_second_protocol(
    current: Transaction, producer: ProducerEpoch, new_producer_id: int | None, *, is_commit: bool, now_ms: int
) -> Finish:
    """A producer that gets its next epoch with the answer."""
    epoch = producer.producer_epoch
    is_repeated = (
        producer.producer_id == current.producer_id
        and 0 <= epoch == current.producer_epoch - 1
        and current.protocol >= SECOND_PROTOCOL  # otherwise the epoch before is somebody else's, who was replaced
    )
    is_before_new_id = (
        producer.producer_id == current.previous_producer_id != current.producer_id
        and epoch == EPOCH_MAX - 1
        and current.producer_epoch == 0
    )
    if producer.producer_id != current.producer_id and not is_before_new_id:
        return Finish(Error.INVALID_PRODUCER_ID_MAPPING)
    if current.state in PREPARED_STATES or current.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        if is_repeated or is_before_new_id:
            return _repeated_second(current, new_producer_id, is_commit=is_commit, now_ms=now_ms)
        if current.state in PREPARED_STATES:
            return Finish(Error.PRODUCER_FENCED)
    if producer != current.producer or epoch == EPOCH_MAX:
        return Finish(Error.PRODUCER_FENCED)
    if is_commit and (not current.is_ongoing or member_of(current.transactional_id) is not None):
        return Finish(Error.INVALID_TXN_STATE)
    if not current.is_exhausted:
        new_producer_id = NO_PRODUCER
    elif new_producer_id is None:
        return Finish(Error.CONCURRENT_TRANSACTIONS)
    return Finish(
        Error.NONE,
        current.ending(is_commit=is_commit, now_ms=now_ms, protocol=SECOND_PROTOCOL, next_producer_id=new_producer_id),
    )


def _repeated(current: Transaction, *, is_commit: bool) -> Error:
    if current.state is (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT):
        return Error.NONE
    if current.state is (State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT):
        return Error.CONCURRENT_TRANSACTIONS
    return Error.INVALID_TXN_STATE


def _repeated_second(current: Transaction, new_producer_id: int | None, *, is_commit: bool, now_ms: int) -> Finish:
    error = _repeated(current, is_commit=is_commit)
    if error is not Error.NONE or current.producer_epoch < EPOCH_MAX:
        return Finish(error)
    # This broker ended it with the last epoch, which is nobody's: the answer needs a new producer id.
    if new_producer_id is None:
        return Finish(Error.CONCURRENT_TRANSACTIONS)
    return Finish(
        Error.NONE,
        replace(
            current,
            producer_id=new_producer_id,
            producer_epoch=0,
            last_update_ms=now_ms,
            previous_producer_id=current.producer_id,
        ),
    )
