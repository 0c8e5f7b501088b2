"""Questions about transactions: what their coordinators know, and what the partitions know.

The two can disagree. A partition that has records of an open transaction which its coordinator does not count among
the partitions of that producer's transaction waits for an end that nobody will write: such a transaction *hangs*, and
readers with isolation level read_committed stand still before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import Error
from penstock.cli.cluster import Answers, BrokerAddress, Cluster, CoordinatorKind
from penstock.cli.direct import DirectClient, check_error
from penstock.cli.failure import ExitCode, Failure, did_you_mean
from penstock.cli.places import Place, by_topic, place_text
from penstock.wire.messages import k22_init_producer_id as k22
from penstock.wire.messages import k27_write_txn_markers as k27
from penstock.wire.messages import k61_describe_producers as k61
from penstock.wire.messages import k65_describe_transactions as k65
from penstock.wire.messages import k66_list_transactions as k66

DEAD = "Dead"
ONGOING = "Ongoing"
OLDEST_COORDINATOR_EPOCH = 0


@dataclass(frozen=True, slots=True)
class Filter:
    """Which transactions to list; what is empty or None does not filter."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id as its coordinator lists it."""

    id: str
    state: str
    producer_id: int
    coordinator: BrokerAddress


@dataclass(frozen=True, slots=True)
class Transaction:
    """All that the coordinator knows of a transactional id; `places` are those whose end is not written yet."""

    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    coordinator: BrokerAddress
    places: list[Place] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PartitionProducer:
    """What a partition knows of one producer; `start_offset` is where its open transaction began there."""

    place: Place
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int | None


def list_transactions(cluster: Cluster, wanted: Filter) -> list[ListedTransaction]:
    """The transactional ids that the filter lets through, by name."""
    request = k66.ListTransactionsRequest(
        state_filters=list(wanted.states), producer_id_filters=list(wanted.producer_ids)
    )
    lowest = 0
    if wanted.longer_than_ms is not None:
        request.duration_filter, lowest = wanted.longer_than_ms, 1
    if wanted.pattern is not None:
        request.transactional_id_pattern, lowest = wanted.pattern, 2

    def ask(client: DirectClient) -> k66.ListTransactionsResponse:
        answer = client.ask(k66.API.key, request, k66.ListTransactionsResponse, lowest=lowest)
        check_error(answer.error_code, None, "the list of transactions")
        return answer

    listed = [
        ListedTransaction(each.transactional_id, each.transaction_state, each.producer_id, broker)
        for broker, answer in cluster.ask_all(ask)
        for each in answer.transaction_states
    ]
    return sorted(listed, key=lambda transaction: transaction.id)


def unknown_transaction(cluster: Cluster, transactional_id: str) -> Failure:
    """The failure for a transactional id that nobody has used, or not for a long time."""
    known = [transaction.id for transaction in list_transactions(cluster, Filter())]
    hint = did_you_mean(transactional_id, known) or " ('penstock transaction list' shows what there is)"
    return Failure(f"there is no transactional id '{transactional_id}'{hint}", ExitCode.NOT_FOUND)


def describe_transactions(cluster: Cluster, ids: Sequence[str]) -> list[Transaction]:
    """The transactions of these ids; fails on the first that does not exist."""
    found = find_transactions(cluster, ids)
    for transactional_id in ids:
        if transactional_id not in found:
            raise unknown_transaction(cluster, transactional_id)
    return [found[transactional_id] for transactional_id in ids]


def find_transactions(cluster: Cluster, ids: Collection[str]) -> dict[str, Transaction]:
    """Those of the ids that their coordinators know."""

    def ask(client: DirectClient, its: list[str]) -> Answers[str]:
        request = k65.DescribeTransactionsRequest(transactional_ids=its)
        answer = client.ask(k65.API.key, request, k65.DescribeTransactionsResponse)
        return {each.transactional_id: (each.error_code, each) for each in answer.transaction_states}

    answers = cluster.ask_coordinators(CoordinatorKind.TRANSACTION, ids, ask)
    coordinators, _ = cluster.coordinators(CoordinatorKind.TRANSACTION, list(ids)) if ids else ({}, {})
    found: dict[str, Transaction] = {}
    for transactional_id, (code, each) in answers.items():
        if code == Error.TRANSACTIONAL_ID_NOT_FOUND:
            continue
        check_error(code, None, f"transactional id '{transactional_id}'")
        found[transactional_id] = _transaction(each, coordinators[transactional_id])
    return {name: transaction for name, transaction in found.items() if transaction.state != DEAD}


def _transaction(each: k65.DescribeTransactionsResponseTransaction, coordinator: BrokerAddress) -> Transaction:
    return Transaction(
        each.transactional_id,
        each.transaction_state,
        each.producer_id,
        each.producer_epoch,
        each.transaction_timeout_ms,
        each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None,
        coordinator,
        sorted((topic.topic, partition) for topic in each.topics for partition in topic.partitions),
    )


def describe_producers(cluster: Cluster, places: Iterable[Place]) -> list[PartitionProducer]:
    """The producers that the leaders of partitions remember."""

    def ask(client: DirectClient, its: list[Place]) -> Answers[Place]:
        topics = [
            k61.DescribeProducersRequestTopic(name=topic, partition_indexes=partitions)
            for topic, partitions in by_topic(its).items()
        ]
        answer = client.ask(k61.API.key, k61.DescribeProducersRequest(topics=topics), k61.DescribeProducersResponse)
        return {
            (topic.name, part.partition_index): (part.error_code, part)
            for topic in answer.topics
            for part in topic.partitions
        }

    answers = cluster.ask_leaders(places, ask)
    producers: list[PartitionProducer] = []
    for place, (code, part) in sorted(answers.items(), key=lambda item: item[0]):
        check_error(code, getattr(part, "error_message", None), place_text(place))
        producers += [_producer(place, each) for each in part.active_producers]
    return producers


def _producer(place: Place, each: k61.DescribeProducersResponseProducer) -> PartitionProducer:
    return PartitionProducer(
        place,
        each.producer_id,
        each.producer_epoch,
        each.last_sequence,
        each.last_timestamp,
        each.coordinator_epoch,
        each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
    )


def transactional_ids(cluster: Cluster, producers: Sequence[PartitionProducer]) -> dict[int, str]:
    """The transactional id behind each producer id, where a coordinator knows one."""
    wanted = sorted({producer.producer_id for producer in producers})
    if not wanted:
        return {}
    return {listed.producer_id: listed.id for listed in list_transactions(cluster, Filter(producer_ids=wanted))}


def hanging(cluster: Cluster, producers: Sequence[PartitionProducer]) -> list[PartitionProducer]:
    """Those with an open transaction in their partition of which no coordinator will write the end."""
    still_open = [producer for producer in producers if producer.start_offset is not None]
    ids = transactional_ids(cluster, still_open)
    known = find_transactions(cluster, set(ids.values()))

    def is_expected(producer: PartitionProducer) -> bool:
        transaction = known.get(ids.get(producer.producer_id, ""))
        return transaction is not None and producer.place in transaction.places

    return [producer for producer in still_open if not is_expected(producer)]


# Ending them


def fence(cluster: Cluster, transaction: Transaction) -> k22.InitProducerIdResponse:
    """Gives the transactional id a new epoch: an open transaction is aborted and its producer can write no more."""

    def ask(client: DirectClient, _ids: list[str]) -> Answers[str]:
        request = k22.InitProducerIdRequest(
            transactional_id=transaction.id, transaction_timeout_ms=transaction.timeout_ms
        )
        answer = client.ask(k22.API.key, request, k22.InitProducerIdResponse)
        return {transaction.id: (answer.error_code, answer)}

    code, answer = cluster.ask_coordinators(CoordinatorKind.TRANSACTION, [transaction.id], ask)[transaction.id]
    check_error(code, None, f"transactional id '{transaction.id}'")
    assert isinstance(answer, k22.InitProducerIdResponse)
    return answer


def write_abort(cluster: Cluster, producer: PartitionProducer) -> None:
    """Writes into the partition that the producer's open transaction was aborted, past its coordinator."""
    topic, partition = producer.place

    def ask(client: DirectClient, _places: list[Place]) -> Answers[Place]:
        marker = k27.WriteTxnMarkersRequestMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[k27.WriteTxnMarkersRequestTopic(name=topic, partition_indexes=[partition])],
            # A producer that never ended a transaction here has none; the oldest is then taken for good by everybody.
            coordinator_epoch=max(producer.coordinator_epoch, OLDEST_COORDINATOR_EPOCH),
        )
        answer: Any = client.ask(k27.API.key, k27.WriteTxnMarkersRequest(markers=[marker]), k27.WriteTxnMarkersResponse)
        return {producer.place: (answer.markers[0].topics[0].partitions[0].error_code, None)}

    code, _ = cluster.ask_leaders([producer.place], ask)[producer.place]
    check_error(code, None, place_text(producer.place))
