"""A batch that counts once: its name, its number, and which run at it this is.

The brokers keep the last number of every name. What a stream writes has the query's id as its name and the batch's id
as its number; both are in the checkpoint, so a batch that is run again is recognised. A write that the user named has
txnAppId and txnVersion. Any other write has a name of its own that is used once and forgotten.

`run` tells one attempt at a batch from the next: the time, in nanoseconds, at which the driver planned it. All tasks of
the attempt get it with the plan, retried and speculative ones too. It only decides who clears up whose leftovers, never
what is committed; so a driver whose clock is behind can be held up, and can do no harm.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from penstock.columnar.commit_many import BatchLost, transactional_id
from penstock.columnar.errors import BrokerAway, ColumnarError, Fenced, StaleNumber
from penstock.spark.sink_options import TRANSACTION_TIMEOUT

#: Ids are used again, so that they do not pile up. A task is seldom tried more often, and never as often at once.
ATTEMPTS_KEPT = 4
#: The only number of a name that is used once.
ONLY_NUMBER = 0


class SinkError(ColumnarError):
    """A write that cannot go on, in the words of whoever asked for it."""


@dataclass(frozen=True, slots=True)
class NamedBatch:
    """See the head of this file."""

    name: str
    number: int
    run: int
    is_stream: bool
    is_forgotten: bool = False
    """the name was made up for this one write"""

    def transactional_id(self, partition: int, attempt: int) -> str:
        """The id under which an attempt at a task writes."""
        return transactional_id(self.name, f"{partition}/{attempt % ATTEMPTS_KEPT}")

    def __str__(self) -> str:
        if self.is_stream:
            return f"batch {self.number} of the query {self.name}"
        return "this write" if self.is_forgotten else f"txnVersion {self.number} of txnAppId {self.name!r}"

    def stale(self, last: int) -> SinkError:
        """A later number has been written already."""
        if self.is_stream:
            return SinkError(
                f"the checkpoint of the query {self.name} is older than what the query has written: it goes on with "
                f"batch {self.number}, and batch {last} is in the topic already. Start the query from its newest "
                "checkpoint. With a new checkpoint it is a new query, which writes everything that it reads"
            )
        return SinkError(f"{self} is refused: {last} has been written already, and txnVersion must grow")

    def superseded(self, why: str) -> SinkError:
        """Another run at this batch, or a later batch, has begun."""
        return SinkError(
            f"{self} is being written by somebody else who began later, so this attempt ends ({why}). If the query was "
            "started twice, stop one of them; otherwise the clock of this driver is behind: start it again"
        )

    def explained(self, error: ColumnarError) -> ColumnarError:
        """What the brokers said about its commit, as it is told to the user."""
        if isinstance(error, StaleNumber):
            return self.stale(error.last)
        if isinstance(error, Fenced):
            return self.superseded(str(error))
        if isinstance(error, BatchLost):
            return SinkError(
                f"{self} could not be committed, and nothing of it is visible: {error.why}. Either another run took it "
                f"over, or it took too long: a task may write for {TRANSACTION_TIMEOUT}, and what is written waits for "
                "the commit as long as the brokers' transaction.prepared.timeout.ms. Start it again: it is written anew"
            )
        if isinstance(error, BrokerAway):
            return SinkError(f"it is not known whether {self} was committed: {error}. {self._how_to_find_out()}")
        return error

    def _how_to_find_out(self) -> str:
        if self.is_forgotten:
            return "Look into the topic before it is written again; options txnAppId and txnVersion would recognise it"
        return "Start the query again: it finds out" if self.is_stream else "Write it again: it counts once"


def used_once(run: int) -> NamedBatch:
    """A batch under a name that nobody else has."""
    return NamedBatch(f"write-{uuid.uuid4()}", ONLY_NUMBER, run, is_stream=False, is_forgotten=True)
