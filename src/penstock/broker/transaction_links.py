"""What a partition's leader asks of the transaction that a batch belongs to, before it takes the batch.

Producers of the second protocol send no AddPartitionsToTxn: the leader adds the partition for them. For older ones the
leader only verifies that the partition has been added, so that a batch that comes late cannot open a transaction that
nobody will ever end. The same goes for the offsets that a transaction commits to a group.

Producers do not know the errors of coordinators; `error_for_producer` gives them one that they retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.broker import Broker
from penstock.transactions.transaction import SECOND_PROTOCOL

PRODUCE_ADDS_SINCE = 12
PRODUCE_KNOWS_ABORTABLE_SINCE = 11
OFFSET_COMMIT_ADDS_SINCE = 5
OFFSET_COMMIT_KNOWS_ABORTABLE_SINCE = 4
_OF_COORDINATORS = (
    Error.NETWORK_EXCEPTION,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)


async def add_or_verify(
    broker: Broker,
    transactional_id: str,
    producer: ProducerEpoch,
    partitions: Sequence[TopicPartition],
    *,
    is_add: bool,
) -> Mapping[TopicPartition, Error]:
    """Add partitions to a transaction, or verify that it has them; what came of it for each.

    The errors are those of a coordinator, but for PRODUCER_FENCED: who writes expects INVALID_PRODUCER_EPOCH. While
    the transaction before this one still ends, which takes some milliseconds, that is CONCURRENT_TRANSACTIONS: whoever
    asks again then must first look at the partition again, where the end of the other transaction may just be written.
    """
    try:
        if is_add:
            error = await _add(broker, transactional_id, producer, partitions)
            return dict.fromkeys(partitions, _as_written_to(error))
        if not broker.settings.flag("transaction.partition.verification.enable"):
            return dict.fromkeys(partitions, Error.NONE)
        log = broker.transactions.of_key(transactional_id)
        answer: Mapping[TopicPartition, Error] = await log.ask(
            lambda machine, token, now: machine.verify_partitions(token, transactional_id, producer, partitions, now)
        )
    except ApiError as refused:
        return dict.fromkeys(partitions, refused.error)
    return {name: _as_written_to(error) for name, error in answer.items()}


async def _add(
    broker: Broker, transactional_id: str, producer: ProducerEpoch, partitions: Sequence[TopicPartition]
) -> Error:
    log = broker.transactions.of_key(transactional_id)
    error: Error = await log.ask(
        lambda machine, token, now: machine.add_partitions(
            token, transactional_id, producer, partitions, SECOND_PROTOCOL, now
        )
    )
    return error


def _as_written_to(error: Error) -> Error:
    return Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED else error


def error_for_producer(error: Error, produce_version: int) -> Error:
    """The error of `add_or_verify` as a Produce of this version is told."""
    if error in _OF_COORDINATORS:
        return Error.NOT_ENOUGH_REPLICAS
    if error is Error.CONCURRENT_TRANSACTIONS and produce_version < PRODUCE_ADDS_SINCE:
        return Error.NOT_ENOUGH_REPLICAS
    if error is Error.TRANSACTION_ABORTABLE and produce_version < PRODUCE_KNOWS_ABORTABLE_SINCE:
        return Error.INVALID_TXN_STATE
    return error


def error_for_offset_commit(error: Error, commit_version: int) -> Error:
    """The error of `add_or_verify` as a TxnOffsetCommit of this version is told."""
    if error is Error.TRANSACTION_ABORTABLE and commit_version < OFFSET_COMMIT_KNOWS_ABORTABLE_SINCE:
        return Error.INVALID_TXN_STATE
    return error
