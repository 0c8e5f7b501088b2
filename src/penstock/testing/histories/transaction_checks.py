"""Is every transaction there whole or not at all, as its producer was told, and is a fenced producer really out?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.testing.histories.facts import Anomaly, Finding, Instance, Outcome, Sent, TopicsRead, Transaction


def transaction_findings(
    sent: Mapping[bytes, Sent],
    transactions: Mapping[str, Transaction],
    instances: Iterable[Instance],
    topics: TopicsRead,
) -> Iterator[Finding]:
    """Everything that is wrong with transactions, seen from the end of the run."""
    members: dict[str, list[Sent]] = {name: [] for name in transactions}
    for one in sent.values():
        if one.transaction is not None:
            members[one.transaction].append(one)
    committed = {where: set(topics.visible(where, committed_only=True).values()) for where in topics.committed}
    for name, transaction in transactions.items():
        visible = [one for one in members[name] if one.value in committed.get(one.where, ())]
        yield from _fate_findings(transaction, members[name], visible)
    yield from _fencing_findings(list(instances), sent.values(), transactions.values())


def _fate_findings(transaction: Transaction, sent: list[Sent], visible: list[Sent]) -> Iterator[Finding]:
    missing = [one for one in sent if one.is_acked and one not in visible]
    if transaction.commit is Outcome.REFUSED:
        for one in visible:
            yield Finding(Anomaly.ABORTED_READ, f"{one} of {transaction.name}, which was not committed, can be read")
    elif visible and missing:
        yield Finding(Anomaly.TORN_TRANSACTION, f"{transaction.name}: {visible[0]} can be read and {missing[0]} cannot")
    elif transaction.commit is Outcome.DONE:
        for one in missing:
            yield Finding(Anomaly.LOST, f"{one} of {transaction.name}, which was committed, cannot be read")


def _fencing_findings(
    instances: list[Instance], sent: Iterable[Sent], transactions: Iterable[Transaction]
) -> Iterator[Finding]:
    fenced_s: dict[str, float] = {}
    for old in instances:
        later = [new.known_s for new in instances if new.transactional_id == old.transactional_id and new != old]
        after = [known_s for known_s in later if known_s > old.known_s]
        if after:
            fenced_s[old.producer] = min(after)
    for one in sent:
        if one.is_acked and one.sent_s > fenced_s.get(one.producer, one.sent_s):
            yield Finding(Anomaly.FENCED_WRITE, f"{one} was acknowledged although it was sent after the fencing")
    for transaction in transactions:
        if transaction.commit is Outcome.DONE and transaction.ending_s > fenced_s.get(
            transaction.producer, transaction.ending_s
        ):
            yield Finding(Anomaly.FENCED_WRITE, f"{transaction.name} was committed after its producer was fenced")
