"""What the members of a group did: which partitions they owned, what they were given of them, what they committed.

Members note an assignment when they are told of it, and the end of it before they tell the group that they have given
partitions up: so two of them never claim a partition at once, unless one was thrown out and does not know it yet.
Events of other processes carry the times at which they happened there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from threading import Condition

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.facts import (
    NEVER_S,
    Claim,
    ClaimEnd,
    Commit,
    CommittedSeen,
    Finding,
    Outcome,
    Seen,
    Stretch,
    TopicsRead,
    Transaction,
    known_outcome,
)
from penstock.testing.histories.group_checks import (
    committed_findings,
    owner_findings,
    start_findings,
    thrown_out_findings,
    unseen_findings,
)


class GroupHistory:
    """See the head of this file; made by `ClientHistory.group`."""

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        changed: Condition,
        interruptions_s: Sequence[float],
        *,
        committed_only: bool,
        is_reset_to_earliest: bool,
    ) -> None:
        self.name = name
        self._clock = clock
        self._changed = changed
        self._interruptions_s = interruptions_s
        self._committed_only = committed_only
        self._is_reset_to_earliest = is_reset_to_earliest
        self._claims: dict[TopicPartition, list[Claim]] = {}
        self._commits: dict[int, list[Commit]] = {}
        self._commit_numbers = count()
        self._committed_seen: list[CommittedSeen] = []
        self._drained: set[TopicPartition] = set()
        self._given: dict[bytes | None, list[str]] = {}

    # What members own

    def assigned(
        self,
        member: str,
        partitions: Iterable[TopicPartition],
        generation: int | None = None,
        at_s: float | None = None,
    ) -> None:
        """A member was told that it owns these partitions from now on, besides those it has."""
        with self._changed:
            now_s = self._now(at_s)
            for where in partitions:
                self._end(member, where, ClaimEnd.REVOKED, now_s)
                first = Stretch(member, where, self._committed_only, now_s)
                self._claims.setdefault(where, []).append(Claim(member, where, now_s, generation, [first]))
            self._changed.notify_all()

    def revoked(self, member: str, partitions: Iterable[TopicPartition], at_s: float | None = None) -> None:
        """A member is about to give partitions up."""
        self._end_all(member, partitions, ClaimEnd.REVOKED, at_s)

    def lost(self, member: str, partitions: Iterable[TopicPartition], at_s: float | None = None) -> None:
        """A member found out that it had been thrown out."""
        self._end_all(member, partitions, ClaimEnd.LOST, at_s)

    def leaving(self, member: str, at_s: float | None = None) -> None:
        """A member is about to leave the group, and with it gives everything up."""
        self._end_all(member, list(self._claims), ClaimEnd.REVOKED, at_s)

    def died(self, member: str, at_s: float | None = None) -> None:
        """A member ended without a word."""
        self._end_all(member, list(self._claims), ClaimEnd.DIED, at_s)

    def paused(self, member: str, at_s: float | None = None) -> None:
        """A member stands still: whether the group still counts on it is not known from here on."""
        with self._changed:
            for where in self._claims:
                for claim in self._open(member, where):
                    claim.doubtful_s = self._now(at_s)

    # What members do

    def polled(
        self, member: str, where: TopicPartition, offset: int, value: bytes | None, at_s: float | None = None
    ) -> None:
        """A member was given a message."""
        with self._changed:
            own = [claim for claim in self._claims.get(where, ()) if claim.member == member]
            assert own, f"{member} was given a message of {where}, which it never owned"
            own[-1].stretches[-1].seen.append(Seen(offset, value, self._now(at_s)))
            self._given.setdefault(value, []).append(member)
            self._changed.notify_all()

    def sought(self, member: str, where: TopicPartition, offset: int | None, at_s: float | None = None) -> None:
        """A member goes on at another offset of a partition that it owns; None: at the committed one."""
        with self._changed:
            for claim in self._open(member, where):
                claim.stretches.append(Stretch(member, where, self._committed_only, self._now(at_s), offset))

    def committing(
        self,
        member: str | None,
        offsets: Mapping[TopicPartition, int],
        *,
        transaction: str | None = None,
        at_s: float | None = None,
    ) -> int:
        """Somebody is about to commit; with a transaction it shares its fate. Gives a number for what follows."""
        with self._changed:
            number = next(self._commit_numbers)
            self._commits[number] = [
                Commit(member, where, offset, self._now(at_s), transaction=transaction)
                for where, offset in offsets.items()
            ]
            return number

    def committed(self, number: int, outcome: Outcome = Outcome.DONE, at_s: float | None = None) -> None:
        """What the member was told about its commit. Without an answer it stays unknown."""
        with self._changed:
            for commit in self._commits[number]:
                commit.outcome = outcome
                commit.ended_s = NEVER_S if outcome is Outcome.UNKNOWN else self._now(at_s)
            self._changed.notify_all()

    def saw_committed(self, where: TopicPartition, offset: int | None, asked_s: float) -> None:
        """Somebody asked for a committed offset at that time, and has the answer now."""
        with self._changed:
            self._committed_seen.append(CommittedSeen(where, offset, asked_s, self._clock()))

    def drained(self, partitions: Iterable[TopicPartition]) -> None:
        """The group was waited for: it must have been given everything that is in these partitions."""
        self._drained.update(partitions)

    # What is known of it

    def owners(self) -> dict[TopicPartition, str]:
        """The owner of each partition, where it is one for certain."""
        with self._changed:
            living = {
                where: [claim for claim in claims if claim.end is ClaimEnd.OPEN and claim.doubtful_s == NEVER_S]
                for where, claims in self._claims.items()
            }
        return {where: claims[0].member for where, claims in living.items() if len(claims) == 1}

    def claim_count(self) -> int:
        """How often partitions were given to members so far."""
        return sum(len(claims) for claims in self._claims.values())

    def given_count(self) -> int:
        """How many messages were given to anybody."""
        return len(self._given)

    def given(self, value: bytes) -> list[str]:
        """The members that were given this message."""
        return self._given.get(value, [])

    def stretches(self) -> Iterator[Stretch]:
        for claims in self._claims.values():
            for claim in claims:
                yield from claim.stretches

    def findings(self, topics: TopicsRead, transactions: Mapping[str, Transaction]) -> list[Finding]:
        """Everything that is wrong with the group."""
        commits = self._commits_by_partition(transactions)
        return [
            *owner_findings(self._claims),
            *thrown_out_findings(self._claims, commits),
            *start_findings(self._claims, commits, topics, is_reset_to_earliest=self._is_reset_to_earliest),
            *committed_findings(self._committed_seen, self._claims, commits),
            *unseen_findings(self._claims, sorted(self._drained), topics, committed_only=self._committed_only),
        ]

    def _commits_by_partition(self, transactions: Mapping[str, Transaction]) -> dict[TopicPartition, list[Commit]]:
        grouped: dict[TopicPartition, list[Commit]] = {}
        for commit in chain.from_iterable(self._commits.values()):
            grouped.setdefault(commit.where, []).append(self._as_known(commit, transactions))
        return grouped

    def _as_known(self, one: Commit, transactions: Mapping[str, Transaction]) -> Commit:
        if one.transaction is not None:
            transaction = transactions[one.transaction]
            return replace(one, outcome=transaction.commit, ended_s=transaction.ended_s)
        return replace(one, outcome=known_outcome(one.outcome, one.sent_s, one.ended_s, self._interruptions_s))

    def _end_all(self, member: str, partitions: Iterable[TopicPartition], end: ClaimEnd, at_s: float | None) -> None:
        with self._changed:
            for where in partitions:
                self._end(member, where, end, self._now(at_s))
            self._changed.notify_all()

    def _end(self, member: str, where: TopicPartition, end: ClaimEnd, now_s: float) -> None:
        for claim in self._open(member, where):
            claim.end, claim.end_s = end, now_s

    def _open(self, member: str, where: TopicPartition) -> Iterator[Claim]:
        return (c for c in self._claims.get(where, ()) if c.member == member and c.end is ClaimEnd.OPEN)

    def _now(self, at_s: float | None) -> float:
        return self._clock() if at_s is None else at_s
