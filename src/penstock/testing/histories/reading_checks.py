"""Did consumers see what is stored, without gaps and in order, and nothing of a transaction that is not committed?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.testing.histories.facts import NEVER_S, Anomaly, Finding, Seen, Sent, Stretch, TopicsRead, Transaction

SHOWN_BYTES = 60


def reading_findings(
    stretches: Iterable[Stretch],
    sent: Mapping[bytes, Sent],
    transactions: Mapping[str, Transaction],
    topics: TopicsRead,
) -> Iterator[Finding]:
    """Everything that is wrong with what consumers were given."""
    for stretch in stretches:
        yield from _order_findings(stretch, topics)
        for seen in stretch.seen:
            yield from _value_findings(stretch, seen, topics)
            if stretch.committed_only:
                yield from _isolation_findings(stretch, seen, sent, transactions, topics)


def _order_findings(stretch: Stretch, topics: TopicsRead) -> Iterator[Finding]:
    next_offset = stretch.start
    for seen in stretch.seen:
        if next_offset is not None:
            if seen.offset < next_offset:
                yield Finding(Anomaly.NON_MONOTONIC_POLL, f"{stretch}: offset {seen.offset} came after {next_offset}")
            skipped = topics.count_between(
                stretch.where, next_offset, seen.offset, committed_only=stretch.committed_only
            )
            if skipped:
                yield Finding(
                    Anomaly.SKIPPED_POLL, f"{stretch}: {skipped} messages from offset {next_offset} to {seen.offset}"
                )
        next_offset = seen.offset + 1


def _value_findings(stretch: Stretch, seen: Seen, topics: TopicsRead) -> Iterator[Finding]:
    stored = topics.visible(stretch.where, committed_only=False)
    what = f"{(seen.value or b'')[:SHOWN_BYTES]!r} at offset {seen.offset}"
    if seen.offset not in stored:
        yield Finding(Anomaly.LOST, f"{stretch}: saw {what}, where nothing is any more")
    elif stored[seen.offset] != seen.value:
        yield Finding(Anomaly.INCONSISTENT_OFFSET, f"{stretch}: saw {what}, where something else is")


def _isolation_findings(
    stretch: Stretch,
    seen: Seen,
    sent: Mapping[bytes, Sent],
    transactions: Mapping[str, Transaction],
    topics: TopicsRead,
) -> Iterator[Finding]:
    one = sent.get(seen.value or b"")
    if one is None or one.transaction is None:
        return
    transaction = transactions[one.transaction]
    if seen.offset not in topics.visible(stretch.where, committed_only=True):
        yield Finding(Anomaly.ABORTED_READ, f"{stretch}: saw {one} of {transaction.name}, which was not committed")
    elif (transaction.ending_s if transaction.is_commit else NEVER_S) > seen.at_s:
        yield Finding(Anomaly.ABORTED_READ, f"{stretch}: saw {one} before {transaction.name} was to be committed")
