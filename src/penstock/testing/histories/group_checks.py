"""Has every partition of a group one owner, do commits stay, and does every new owner begin where they say?

What a committed offset can be at a moment is judged like a register: any commit counts that may have been done by then
and that no other one, done for certain after it and before the moment, has replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.facts import (
    NEVER_S,
    Anomaly,
    Claim,
    Commit,
    CommittedSeen,
    Finding,
    Outcome,
    Stretch,
    TopicsRead,
)


def owner_findings(claims: Mapping[TopicPartition, list[Claim]]) -> Iterator[Finding]:
    """Partitions that two members owned at once."""
    for where, all_of_one in claims.items():
        for earlier, later in _pairs(all_of_one):
            is_same_generation = earlier.generation is not None and earlier.generation == later.generation
            if is_same_generation or later.begin_s < earlier.sure_until_s:
                yield Finding(Anomaly.TWO_OWNERS, f"{where}: {earlier}, and {later}")


def _pairs(claims: list[Claim]) -> Iterator[tuple[Claim, Claim]]:
    """Every two claims of different members, the earlier one first."""
    ordered = sorted(claims, key=attrgetter("begin_s"))
    for index, later in enumerate(ordered):
        yield from ((earlier, later) for earlier in ordered[:index] if earlier.member != later.member)


def thrown_out_findings(
    claims: Mapping[TopicPartition, list[Claim]], commits: Mapping[TopicPartition, list[Commit]]
) -> Iterator[Finding]:
    """Commits that were accepted although the partition had gone to somebody else before they were sent.

    A client that joins the group again meanwhile may send them as the member that it has become: that is its affair.
    """
    joined_s: dict[str, list[float]] = {}
    for claim in chain.from_iterable(claims.values()):
        joined_s.setdefault(claim.member, []).append(claim.begin_s)
    for where, commits_of_one in commits.items():
        for commit in commits_of_one:
            if commit.outcome is not Outcome.DONE or commit.member is None:
                continue
            own = [claim for claim in claims.get(where, ()) if claim.member == commit.member]
            current = next((claim for claim in reversed(own) if claim.covers(commit.sent_s)), None)
            if current is None or any(commit.sent_s < at_s <= commit.ended_s for at_s in joined_s[commit.member]):
                continue
            since = successor(current, claims[where])
            if since is not None and since.begin_s < commit.sent_s:
                yield Finding(Anomaly.THROWN_OUT_COMMIT, f"{commit}, after {since}")


def successor(claim: Claim, claims: Iterable[Claim]) -> Claim | None:
    """The first other member that got the partition after this one did."""
    later = [one for one in claims if one.member != claim.member and one.begin_s > claim.begin_s]
    return min(later, key=attrgetter("begin_s"), default=None)


def bounded(commit: Commit, claims: Iterable[Claim]) -> Commit:
    """A commit without an answer can have been done only before its member was replaced: later it is fenced."""
    if commit.outcome is not Outcome.UNKNOWN or commit.transaction is not None or commit.member is None:
        return commit
    claims = list(claims)
    own = [claim for claim in claims if claim.member == commit.member and claim.begin_s <= commit.sent_s]
    since = successor(own[-1], claims) if own else None
    if since is None:
        return commit
    return replace(commit, ended_s=min(commit.ended_s, max(since.begin_s, commit.sent_s)))


def possible_offsets(commits: Iterable[Commit], asked_s: float, answered_s: float) -> set[int | None]:
    """What the committed offset can have been for somebody who asked between these times; None: there was none."""
    begun = [one for one in commits if one.outcome is not Outcome.REFUSED and one.sent_s <= answered_s]
    certain = [one for one in begun if one.outcome is Outcome.DONE and one.ended_s < asked_s]
    newest_s = max((one.sent_s for one in certain), default=-NEVER_S)
    possible: set[int | None] = {one.offset for one in begun if one.ended_s >= newest_s}
    return possible if certain else possible | {None}


def start_findings(
    claims: Mapping[TopicPartition, list[Claim]],
    commits: Mapping[TopicPartition, list[Commit]],
    topics: TopicsRead,
    *,
    is_reset_to_earliest: bool,
) -> Iterator[Finding]:
    """Owners that did not begin where the committed offset says."""
    for where, all_of_one in claims.items():
        known = [bounded(commit, all_of_one) for commit in commits.get(where, ())]
        before: Claim | None = None
        for claim in sorted(all_of_one, key=attrgetter("begin_s")):
            for stretch in claim.stretches:
                if stretch.start is None and stretch.seen:
                    possible = possible_offsets(known, stretch.begin_s, stretch.seen[0].at_s)
                    if before is not None and stretch is claim.stretches[0]:
                        possible |= _own_position(before, claim)
                    if is_reset_to_earliest or None not in possible:
                        yield from _start_findings(stretch, possible, topics)
            before = claim


def _own_position(before: Claim, claim: Claim) -> set[int]:
    """A member that gets back what it had may go on where it was: nobody else has been there."""
    if before.member != claim.member or not before.stretches[-1].seen:
        return set()
    return {before.stretches[-1].seen[-1].offset + 1}


def _start_findings(stretch: Stretch, possible: set[int | None], topics: TopicsRead) -> Iterator[Finding]:
    first, only = stretch.seen[0].offset, stretch.committed_only
    starts = sorted(0 if offset is None else offset for offset in possible)
    if not any(
        start <= first and not topics.count_between(stretch.where, start, first, committed_only=only)
        for start in starts
    ):
        anomaly = Anomaly.COMMIT_WENT_BACK if first < starts[0] else Anomaly.SKIPPED_POLL
        yield Finding(anomaly, f"{stretch}: began at offset {first}, the commits say {starts}")


def committed_findings(
    seen: Iterable[CommittedSeen],
    claims: Mapping[TopicPartition, list[Claim]],
    commits: Mapping[TopicPartition, list[Commit]],
) -> Iterator[Finding]:
    """Answers about committed offsets that no order of the commits explains."""
    for one in seen:
        known = [bounded(commit, claims.get(one.where, ())) for commit in commits.get(one.where, ())]
        possible = possible_offsets(known, one.asked_s, one.answered_s)
        if one.offset not in possible:
            shown = sorted(possible, key=lambda offset: -1 if offset is None else offset)
            yield Finding(Anomaly.COMMIT_WENT_BACK, f"{one.where}: {one.offset} is committed, the commits say {shown}")


def unseen_findings(
    claims: Mapping[TopicPartition, list[Claim]],
    partitions: Iterable[TopicPartition],
    topics: TopicsRead,
    *,
    committed_only: bool,
) -> Iterator[Finding]:
    """Messages that no member was given although the group read to the end."""
    for where in partitions:
        stretches = [stretch for claim in claims.get(where, ()) for stretch in claim.stretches]
        given = {seen.offset for stretch in stretches for seen in stretch.seen}
        unseen = [offset for offset in topics.visible(where, committed_only=committed_only) if offset not in given]
        if unseen:
            yield Finding(Anomaly.UNSEEN, f"{where}: {len(unseen)} messages, the first at offset {min(unseen)}")
