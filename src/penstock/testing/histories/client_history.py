"""What the clients of a run sent, were told and saw, and the verdict on it.

    history = ClientHistory(time.monotonic)
    value = history.sending("producer-1", 0, TopicPartition("t", 0))
    …                                                   # the producer sends it
    history.acked(value, 17)
    reading = history.reading("reader", TopicPartition("t", 0), start=0)
    history.saw(reading, 17, value)
    assert history.findings(topics_as_they_are_now) == []

Whoever produces notes each message before it is handed over and each answer after it has come; whoever reads notes
what it is given; whoever uses transactions notes how they begin, are to end, and end. At the end the topics are read
from the beginning, with and without what is not committed, and everything that was told must agree with them.
`group_history.py` adds what members of a group do. Any thread may call any method; the clock is an argument, so that
the simulator uses it as well as tests with real processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from threading import Condition

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.facts import (
    NEVER_S,
    Finding,
    Instance,
    Outcome,
    Seen,
    Sent,
    Stretch,
    TopicsRead,
    Transaction,
    known_outcome,
)
from penstock.testing.histories.group_history import GroupHistory
from penstock.testing.histories.message_checks import message_findings
from penstock.testing.histories.reading_checks import reading_findings
from penstock.testing.histories.transaction_checks import transaction_findings


class ClientHistory:
    """See the head of this file."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._changed = Condition()
        self._sent: dict[bytes, Sent] = {}
        self._transactions: dict[str, Transaction] = {}
        self._instances: list[Instance] = []
        self._stretches: list[Stretch] = []
        self._groups: list[GroupHistory] = []
        self._interruptions_s: list[float] = []
        self._acknowledged = 0
        self.errors: list[str] = []

    @property
    def sent(self) -> int:
        return len(self._sent)

    @property
    def acknowledged(self) -> int:
        return self._acknowledged

    # Producers

    def sending(
        self,
        producer: str,
        number: int,
        where: TopicPartition,
        *,
        transaction: str | None = None,
        padding_bytes: int = 0,
    ) -> bytes:
        """The value of a producer's next message; no two are equal."""
        value = f"{producer}/{number}/{where}/".encode().ljust(padding_bytes, b".")
        with self._changed:
            if value in self._sent:
                raise ValueError(f"message {number} of {producer} was sent before")
            self._sent[value] = Sent(producer, number, where, value, self.clock(), transaction)
        return value

    def acked(self, value: bytes, offset: int) -> None:
        """The producer was told that a message is there; -1 if it was not told where."""
        with self._changed:
            one = self._sent[value]
            one.offset, one.acked_s = offset, self.clock()
            self._acknowledged += 1
            self._changed.notify_all()

    def failed(self, value: bytes, error: Exception) -> None:
        """The producer was told that a message may not have been written: it may be there or not."""
        with self._changed:
            self.errors.append(f"{self._sent[value]}: {error}")
            self._changed.notify_all()

    # Transactions

    def initialised(self, transactional_id: str, producer: str) -> None:
        """A producer has got its id and epoch: all others with this transactional id are fenced."""
        with self._changed:
            self._instances.append(Instance(transactional_id, producer, self.clock()))

    def beginning(self, transaction: str, producer: str) -> None:
        """A producer begins a transaction; the name is for this history only."""
        with self._changed:
            assert transaction not in self._transactions, f"{transaction} began before"
            self._transactions[transaction] = Transaction(transaction, producer, self.clock())

    def ending(self, transaction: str, *, is_commit: bool) -> None:
        """A producer is about to ask for the end of a transaction."""
        with self._changed:
            one = self._transactions[transaction]
            one.ending_s, one.is_commit = self.clock(), is_commit

    def ended(self, transaction: str, outcome: Outcome = Outcome.DONE) -> None:
        """What a producer was told about the end it asked for."""
        with self._changed:
            one = self._transactions[transaction]
            one.ended_s, one.outcome = NEVER_S if outcome is Outcome.UNKNOWN else self.clock(), outcome

    # Readers

    def reading(
        self, consumer: str, where: TopicPartition, start: int | None = None, *, committed_only: bool = False
    ) -> Stretch:
        """A consumer begins to read a partition: at an offset, or somewhere."""
        with self._changed:
            self._stretches.append(Stretch(consumer, where, committed_only, self.clock(), start))
            return self._stretches[-1]

    def saw(self, stretch: Stretch, offset: int, value: bytes | None) -> None:
        """A consumer was given a message."""
        with self._changed:
            stretch.seen.append(Seen(offset, value, self.clock()))
            self._changed.notify_all()

    def group(self, name: str, *, committed_only: bool = False, is_reset_to_earliest: bool = True) -> GroupHistory:
        """What members of a group do; `committed_only` if they read with read_committed."""
        one = GroupHistory(
            name,
            self.clock,
            self._changed,
            self._interruptions_s,
            committed_only=committed_only,
            is_reset_to_earliest=is_reset_to_earliest,
        )
        with self._changed:
            self._groups.append(one)
        return one

    def interrupted(self, at_s: float | None = None) -> None:
        """A broker is about to be killed, or its connections cut: whoever is waiting for an answer now gets another.

        Where that is told later, `at_s` is when it was.
        """
        with self._changed:
            self._interruptions_s.append(self.clock() if at_s is None else at_s)

    # The verdict

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, what: Callable[[], str] = lambda: "") -> None:
        """Wait until a condition about this history holds; TimeoutError with `what` says how far it came."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise TimeoutError(f"not within {timeout_s} s: {what()}; {self.errors[:3]}")

    def wait_for_acknowledged(self, total: int, timeout_s: float) -> None:
        """Wait until this many messages were acknowledged; raises TimeoutError."""
        self.wait_for(
            lambda: self._acknowledged >= total, timeout_s, lambda: f"{self._acknowledged} of {total} acknowledged"
        )

    def findings(self, topics: TopicsRead) -> list[Finding]:
        """Everything that is wrong; `topics` is every partition that was written, read from its beginning."""
        with self._changed:
            transactions = {name: self._as_known(one) for name, one in self._transactions.items()}
            stretches = [*self._stretches, *chain.from_iterable(group.stretches() for group in self._groups)]
            found = [
                *message_findings(self._sent, topics),
                *reading_findings(stretches, self._sent, transactions, topics),
                *transaction_findings(self._sent, transactions, self._instances, topics),
            ]
            for group in self._groups:
                found += group.findings(topics, transactions)
            return found

    def _as_known(self, one: Transaction) -> Transaction:
        outcome = known_outcome(one.outcome, one.ending_s, one.ended_s, self._interruptions_s)
        return replace(one, outcome=outcome)
