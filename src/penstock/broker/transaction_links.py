"""What a partition's leader asks of the transaction that a batch belongs to, before it takes the batch.

Producers of the second protocol send no AddPartitionsToTxn: the leader adds the partition for them. For older ones the
leader only verifies that the partition has been added, so that a batch that comes late cannot open a transaction that
nobody will ever end. The same goes for the offsets that a transaction commits to a group.

The coordinator is this broker, or another one, which is asked with AddPartitionsToTxn. Producers do not know the errors
of coordinators, nor those of the way to one; `error_for_producer` gives them one that they retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.broker import Broker
from penstock.broker.peers import PeerError
from penstock.transactions.transaction import SECOND_PROTOCOL
from penstock.wire.messages.k24_add_partitions_to_txn import (
    API,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
)

PRODUCE_ADDS_SINCE = 12
PRODUCE_KNOWS_ABORTABLE_SINCE = 11
OFFSET_COMMIT_ADDS_SINCE = 5
OFFSET_COMMIT_KNOWS_ABORTABLE_SINCE = 4
ANSWERED_WITHIN_S = 10.0
_OF_COORDINATORS = (
    Error.NETWORK_EXCEPTION,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    # the coordinator does not know a topic yet that is here
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.OPERATION_NOT_ATTEMPTED,
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
    if not (is_add or broker.settings.flag("transaction.partition.verification.enable")):
        return dict.fromkeys(partitions, Error.NONE)
    try:
        coordinator_id = broker.transactions.leader_of(transactional_id)
        if coordinator_id != broker.node_id:
            answer = await _ask_there(broker, coordinator_id, transactional_id, producer, partitions, is_add)
        elif is_add:
            answer = await _add_here(broker, transactional_id, producer, partitions)
        else:
            answer = await _verify_here(broker, transactional_id, producer, partitions)
    except ApiError as refused:
        return dict.fromkeys(partitions, refused.error)
    return {name: _as_written_to(error) for name, error in answer.items()}


async def _add_here(
    broker: Broker, transactional_id: str, producer: ProducerEpoch, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, Error]:
    log = broker.transactions.of_key(transactional_id)
    error: Error = await log.ask(
        lambda machine, token, now: machine.add_partitions(
            token, transactional_id, producer, partitions, SECOND_PROTOCOL, now
        )
    )
    return dict.fromkeys(partitions, error)


async def _verify_here(
    broker: Broker, transactional_id: str, producer: ProducerEpoch, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, Error]:
    log = broker.transactions.of_key(transactional_id)
    answer: Mapping[TopicPartition, Error] = await log.ask(
        lambda machine, token, now: machine.verify_partitions(token, transactional_id, producer, partitions, now)
    )
    return answer


async def _ask_there(
    broker: Broker,
    coordinator_id: int,
    transactional_id: str,
    producer: ProducerEpoch,
    partitions: Sequence[TopicPartition],
    is_add: bool,
) -> Mapping[TopicPartition, Error]:
    indexes: dict[str, list[int]] = {}
    for name in partitions:
        indexes.setdefault(name.topic, []).append(name.partition)
    asked = AddPartitionsToTxnRequestTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=not is_add,
        topics=[AddPartitionsToTxnRequestTopic(name=topic, partitions=found) for topic, found in indexes.items()],
    )
    request = AddPartitionsToTxnRequest(transactions=[asked])
    try:
        response: AddPartitionsToTxnResponse = await broker.peers.ask(
            coordinator_id, API, request, timeout_s=ANSWERED_WITHIN_S
        )
    except PeerError as error:
        raise ApiError(Error.NETWORK_EXCEPTION, str(error)) from error
    if response.error_code:
        raise ApiError(Error(response.error_code))
    answers = {
        TopicPartition(topic.name, part.partition_index): Error(part.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for part in topic.results_by_partition
    }
    return {name: answers.get(name, Error.NETWORK_EXCEPTION) for name in partitions}


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
    """The error of `add_or_verify` as a TxnOffsetCommit of this version is told.

    That the transaction's coordinator has moved is not news of the group's: the client need not look for that again.
    """
    if error in _OF_COORDINATORS:
        return Error.COORDINATOR_LOAD_IN_PROGRESS
    if error is Error.TRANSACTION_ABORTABLE and commit_version < OFFSET_COMMIT_KNOWS_ABORTABLE_SINCE:
        return Error.INVALID_TXN_STATE
    return error
