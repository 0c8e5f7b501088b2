"""The words in which a history is told: who sent, read, owned and committed what, and when.

Times are seconds of one clock that all clients of the run share (the monotonic clock of the machine, or the virtual one
of the simulator). A fact about an exchange with the broker has two times: when it was asked and when it was answered;
what the broker did happened between them. Facts are filled in while the run goes on and only read by the checks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

from penstock.base.identifiers import TopicPartition

NEVER_S = float("inf")


class Anomaly(StrEnum):
    """What can be wrong; the first ones as promises.md names them."""

    LOST = "lost"
    UNSEEN = "unseen"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSET = "inconsistent offset"
    ABORTED_READ = "aborted read"
    SKIPPED_POLL = "skipped poll"
    NON_MONOTONIC_POLL = "non-monotonic poll"
    REORDERED = "reordered"
    INVENTED = "invented"
    MISPLACED = "misplaced"
    TORN_TRANSACTION = "torn transaction"
    FENCED_WRITE = "write of a fenced producer"
    TWO_OWNERS = "two owners"
    COMMIT_WENT_BACK = "commit went back"
    THROWN_OUT_COMMIT = "commit of a thrown-out member"


class Finding(NamedTuple):
    """One broken promise, with what broke it."""

    anomaly: Anomaly
    text: str

    def __str__(self) -> str:
        return f"{self.anomaly}: {self.text}"


class Outcome(Enum):
    """How something that was asked of the broker ended."""

    UNKNOWN = "unknown"  # no answer, or one that does not say whether it happened
    DONE = "done"
    REFUSED = "refused"


def known_outcome(outcome: Outcome, asked_s: float, answered_s: float, interruptions_s: Sequence[float]) -> Outcome:
    """What an answer really says. Clients ask again by themselves: a refusal after the broker went away in between may
    be the answer to the second attempt, while the first one was done."""
    is_interrupted = any(asked_s <= at_s <= answered_s for at_s in interruptions_s)
    return Outcome.UNKNOWN if outcome is Outcome.REFUSED and is_interrupted else outcome


class Stored(NamedTuple):
    """One message of a partition."""

    offset: int
    value: bytes | None


class TopicsRead:
    """What is left at the end: every partition read from its first to its last message.

    `everything` as read_uncommitted shows it, `committed` as read_committed does; the same if nobody used transactions.
    """

    def __init__(
        self,
        everything: Mapping[TopicPartition, Sequence[Stored]],
        committed: Mapping[TopicPartition, Sequence[Stored]] | None = None,
    ) -> None:
        self.everything = everything
        self.committed = everything if committed is None else committed
        self._views = {False: _View(self.everything), True: _View(self.committed)}

    def visible(self, where: TopicPartition, *, committed_only: bool) -> Mapping[int, bytes | None]:
        """The values that a reader is to see, by their offsets."""
        return self._views[committed_only].values.get(where, {})

    def count_between(self, where: TopicPartition, first: int, end: int, *, committed_only: bool) -> int:
        """How many messages a reader is to see from offset `first` to just before `end`."""
        offsets = self._views[committed_only].offsets.get(where, [])
        return max(0, bisect_left(offsets, end) - bisect_left(offsets, first))


class _View:
    def __init__(self, partitions: Mapping[TopicPartition, Sequence[Stored]]) -> None:
        self.values = {where: dict(messages) for where, messages in partitions.items()}
        self.offsets = {where: sorted(values) for where, values in self.values.items()}


@dataclass(slots=True)
class Sent:
    """One message that a producer handed over, and what it was told about it."""

    producer: str
    number: int
    where: TopicPartition
    value: bytes
    sent_s: float
    transaction: str | None = None
    offset: int | None = None
    acked_s: float = NEVER_S

    @property
    def is_acked(self) -> bool:
        return self.offset is not None

    def __str__(self) -> str:
        return f"message {self.number} of {self.producer} for {self.where}"


@dataclass(slots=True)
class Transaction:
    """One transaction of one producer. DONE: the producer was told that it ended as it asked."""

    name: str
    producer: str
    begun_s: float
    is_commit: bool = False
    ending_s: float = NEVER_S
    ended_s: float = NEVER_S
    outcome: Outcome = Outcome.UNKNOWN

    @property
    def commit(self) -> Outcome:
        """Was it committed? A commit that was never asked for did not happen."""
        return self.outcome if self.is_commit else Outcome.REFUSED


class Instance(NamedTuple):
    """A producer that was initialised with a transactional id: from `known_s` on, all before it are fenced."""

    transactional_id: str
    producer: str
    known_s: float


class Seen(NamedTuple):
    """A message that a consumer was given."""

    offset: int
    value: bytes | None
    at_s: float


@dataclass(slots=True)
class Stretch:
    """What one consumer was given of one partition, one after the other, without a seek or a new owner in between."""

    consumer: str
    where: TopicPartition
    committed_only: bool
    begin_s: float
    #: None: wherever the committed offset of the group says, or unknown for a reader without one.
    start: int | None = None
    seen: list[Seen] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.consumer} reading {self.where}"


class ClaimEnd(Enum):
    """How a member stopped being the owner of a partition."""

    REVOKED = "revoked"  # it gave the partition up, and the group waited for that
    LOST = "lost"  # it found out that it had been thrown out
    DIED = "died"
    OPEN = "open"


@dataclass(slots=True)
class Claim:
    """The time in which a member took itself for the owner of a partition. A seek begins a new stretch in it."""

    member: str
    where: TopicPartition
    begin_s: float
    generation: int | None
    stretches: list[Stretch]
    end_s: float = NEVER_S
    end: ClaimEnd = ClaimEnd.OPEN
    #: From here on nobody can say whether the group still waits for it: it was paused.
    doubtful_s: float = NEVER_S

    @property
    def sure_until_s(self) -> float:
        """Until then nobody else may own the partition; a member that was thrown out does not know since when."""
        return self.begin_s if self.end is ClaimEnd.LOST else min(self.end_s, self.doubtful_s)

    def covers(self, at_s: float) -> bool:
        return self.begin_s <= at_s <= self.end_s

    def __str__(self) -> str:
        generation = "" if self.generation is None else f" in generation {self.generation}"
        return f"{self.member}{generation} from {self.begin_s:.3f} to {self.end_s:.3f} ({self.end.value})"


@dataclass(slots=True)
class Commit:
    """One offset of one partition that somebody committed; `member` is None for whoever does not own partitions."""

    member: str | None
    where: TopicPartition
    offset: int
    sent_s: float
    ended_s: float = NEVER_S
    outcome: Outcome = Outcome.UNKNOWN
    #: The transaction it belongs to and whose fate it shares.
    transaction: str | None = None

    def __str__(self) -> str:
        return f"{self.member or 'somebody outside'} committed {self.offset} of {self.where} at {self.sent_s:.3f}"


class CommittedSeen(NamedTuple):
    """Somebody asked for a committed offset; None if there was none."""

    where: TopicPartition
    offset: int | None
    asked_s: float
    answered_s: float
