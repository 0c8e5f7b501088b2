"""Transactions of real producers, with everything noted in a history of clients."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Outcome

from .client import DEADLINE_S, Refused
from .group_client import TransactionalProducer
from .message_flow import send_noted

#: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED and librdkafka's words for
#: being fenced and for not being in a transaction any more: after them the transaction is surely not committed.
REFUSALS = {47, 48, 49, 90, -144, -172}


class NotedProducer:
    """One producer with a transactional id. Its transactions are called after it, in the order of their numbers."""

    def __init__(
        self, producer: TransactionalProducer, history: ClientHistory, name: str, transactional_id: str
    ) -> None:
        self.producer = producer
        self.name = name
        self._history = history
        self._sent = 0
        self._transactions = 0
        history.initialised(transactional_id, name)

    def begin(self) -> str:
        self._transactions += 1
        transaction = f"transaction {self._transactions} of {self.name}"
        self._history.beginning(transaction, self.name)
        self.producer.begin()
        return transaction

    def send(self, transaction: str, partitions: Sequence[TopicPartition]) -> list[bytes]:
        """One message to each of the partitions, and wait for the answers."""
        values = []
        for where in partitions:
            values.append(self._history.sending(self.name, self._sent, where, transaction=transaction))
            self._sent += 1
            send_noted(self.producer, self._history, where, values[-1])
        self.producer.flush()
        return values

    def end(self, transaction: str, *, is_commit: bool, timeout_s: float = DEADLINE_S) -> None:
        """Commit or abort; raises Refused after it was noted."""
        self._history.ending(transaction, is_commit=is_commit)
        try:
            (self.producer.commit if is_commit else self.producer.abort)(timeout_s)
        except Refused as error:
            self._history.ended(transaction, Outcome.REFUSED if error.code in REFUSALS else Outcome.UNKNOWN)
            raise
        self._history.ended(transaction)

    def transact(self, partitions: Sequence[TopicPartition], *, is_commit: bool) -> list[bytes]:
        """A whole transaction."""
        transaction = self.begin()
        values = self.send(transaction, partitions)
        self.end(transaction, is_commit=is_commit)
        return values
