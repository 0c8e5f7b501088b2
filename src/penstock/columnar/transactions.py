"""Who a producer is to the cluster, and its transactions.

Every producer has an id and an epoch, so that brokers recognise what it repeats. One with a *transactional id* gets
them from the coordinator of that id, who then knows of its transactions. There are two protocols:

- The newer (KIP-890; the cluster says `transaction.version` 2): writing to a partition also adds it to the transaction,
  and the end of a transaction brings the epoch of the next. A late request can never touch another transaction.
- The older: partitions are added before they are written to, and the epoch stays. After an abort we ask for a new one
  ourselves, so that nothing that was still under way counts for the next transaction.

Each request is made again until it is answered for certain; the coordinator knows a repeated one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.columnar.cluster import TRANSACTION, Cluster
from penstock.columnar.connection import Connection
from penstock.columnar.errors import Fenced, Refused, check
from penstock.wire.api_declaration import Api
from penstock.wire.messages import k00_produce, k22_init_producer_id, k24_add_partitions_to_txn, k26_end_txn
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest
from penstock.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnRequestTopic
from penstock.wire.messages.k26_end_txn import EndTxnRequest
from penstock.wire.schema import Message

FEATURE = "transaction.version"
NEWER_SINCE = 2
END_TXN_NEWER_SINCE = 5
PRODUCE_NEWER_SINCE = 12
ADD_PARTITIONS_OF_CLIENTS = 3  # later versions are for brokers among themselves
NOBODY = ProducerEpoch(-1, -1)

TAKEN_OVER = "a newer producer has taken over, or its transaction was open for too long and was aborted"
FENCING = frozenset({Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_ID_MAPPING})


class Identity:
    """One producer's id and epoch; with a transactional id also what is known of its open transaction."""

    def __init__(self, cluster: Cluster, transactional_id: str | None, transaction_timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.producer = NOBODY
        self.is_newer = False
        self.is_open = False
        """something of a transaction may be at the coordinator"""
        self._cluster = cluster
        self._timeout_ms = transaction_timeout_ms
        self._is_commit_in_doubt = False
        self._added: set[TopicPartition] = set()

    def initialise(self) -> None:
        """Get an id and an epoch. Whoever used the transactional id before is fenced, its open transaction aborted."""
        self._initialise(NOBODY)

    def _initialise(self, former: ProducerEpoch) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=former.producer_id,
            producer_epoch=former.producer_epoch,
        )
        answer = self._ask(k22_init_producer_id.API, request, "get a producer id")
        self.producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)

    def before_writing(self, partitions: Iterable[TopicPartition]) -> None:
        """Batches are about to be sent to these partitions."""
        if self.transactional_id is None:
            return
        self.is_open = True
        new = [where for where in partitions if where not in self._added]
        if new and not self.is_newer:
            self._add_partitions(new)
        self._added.update(new)

    def produce_version(self) -> int:
        """The highest version of Produce that goes with the protocol."""
        if self.transactional_id is None or self.is_newer:
            return k00_produce.API.max_version
        return PRODUCE_NEWER_SINCE - 1

    def end(self, *, is_commit: bool) -> bool:
        """Commit or abort what is open; whether there is a new epoch. Nothing happens if nothing was written."""
        if not self.is_open:
            return False
        before = self.producer
        self._is_commit_in_doubt |= is_commit
        self._end_or_begin_anew(is_commit=is_commit)
        self._is_commit_in_doubt = False
        self.is_open = False
        self._added.clear()
        return self.producer != before

    def _end_or_begin_anew(self, *, is_commit: bool) -> None:
        """After an abort the epoch is always a new one."""
        try:
            answer = self._end(is_commit=is_commit)
        except Refused as error:
            if error.error is not Error.INVALID_TXN_STATE:
                raise
            problem = self._why_not_open(is_commit=is_commit)
            if problem is not None:
                raise Refused(error.what, error.error, f"{problem}: {error.message}") from error
            self._initialise(self.producer)  # nothing had arrived of what was sent
            return
        if self.is_newer:
            self.producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)
        elif not is_commit:
            self._initialise(self.producer)

    def _why_not_open(self, *, is_commit: bool) -> str | None:
        """What it means that the coordinator has no open transaction; None if nothing is wrong with that."""
        if is_commit:
            self._is_commit_in_doubt = False
            return "the transaction is not open any more, or is not ended in this way"
        return "a commit was asked for before, and may have been done" if self._is_commit_in_doubt else None

    def _end(self, *, is_commit: bool) -> Any:
        request = EndTxnRequest(
            transactional_id=self.transactional_id or "",
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            committed=is_commit,
        )
        highest = END_TXN_NEWER_SINCE if self.is_newer else END_TXN_NEWER_SINCE - 1
        what = "commit a transaction" if is_commit else "abort a transaction"
        return self._ask(k26_end_txn.API, request, what, highest)

    def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        by_topic: dict[str, list[int]] = {}
        for where in partitions:
            by_topic.setdefault(where.topic, []).append(where.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequestTopic(name=topic, partitions=numbers) for topic, numbers in by_topic.items()
            ],
        )
        what = f"add {', '.join(by_topic)} to a transaction"
        self._ask(k24_add_partitions_to_txn.API, request, what, ADD_PARTITIONS_OF_CLIENTS)

    def _ask(self, api: Api, request: Message, what: str, highest: int | None = None) -> Any:
        """The answer without an error, however often it has to be asked for."""

        def attempt() -> Any:
            connection = self._connection()
            answer = connection.ask(request, connection.version_of(api, highest))
            _check(answer)
            return answer

        if self.transactional_id is None:
            return self._cluster.retry(attempt, what)
        try:
            return self._cluster.retry(attempt, f"{what} for the transactional id {self.transactional_id}")
        except Refused as error:
            if error.error in FENCING:
                raise Fenced(self.transactional_id, TAKEN_OVER) from error
            raise

    def _connection(self) -> Connection:
        if self.transactional_id is None:
            return self._cluster.any()
        connection = self._cluster.coordinator(self.transactional_id, TRANSACTION)
        if not self.is_open:
            self.is_newer = connection.features.get(FEATURE, 0) >= NEWER_SINCE and connection.serves(
                k26_end_txn.API, END_TXN_NEWER_SINCE
            )
        return connection


def _check(answer: Any) -> None:
    """ApiError for the first thing that was refused; if many were, not for those that were not tried because of it."""
    check(getattr(answer, "error_code", 0))
    codes = [
        partition.partition_error_code
        for topic in getattr(answer, "results_by_topic_v3_and_below", ())
        for partition in topic.results_by_partition
        if partition.partition_error_code
    ]
    if codes:
        check(next((code for code in codes if code != Error.OPERATION_NOT_ATTEMPTED), codes[0]))
