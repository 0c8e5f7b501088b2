"""Is everything there that producers were told of, once, where they were told, in the order in which they sent it?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.facts import Anomaly, Finding, Sent, Stored, TopicsRead

SHOWN_BYTES = 60


def message_findings(sent: Mapping[bytes, Sent], topics: TopicsRead) -> Iterator[Finding]:
    """Everything that is wrong with what is stored, seen from the producers."""
    for where, messages in topics.everything.items():
        yield from _stored_findings(where, messages, sent)
    yield from _acked_findings(sent.values(), topics)
    yield from _order_of_answers(sent.values())


def _stored_findings(
    where: TopicPartition, messages: Iterable[Stored], sent: Mapping[bytes, Sent]
) -> Iterator[Finding]:
    place: dict[bytes, int] = {}
    last: dict[str, Sent] = {}
    last_offset = -1
    for offset, value in messages:
        if offset <= last_offset:
            yield Finding(Anomaly.NON_MONOTONIC_POLL, f"{where} offset {offset} was read after offset {last_offset}")
        last_offset = offset
        one = sent.get(value or b"")
        if one is None:
            yield Finding(Anomaly.INVENTED, f"nobody sent {(value or b'')[:SHOWN_BYTES]!r}, {where} offset {offset}")
        elif one.where != where:
            yield Finding(Anomaly.MISPLACED, f"{one} is in {where} at offset {offset}")
        elif one.value in place:
            yield Finding(Anomaly.DUPLICATE, f"{one} is at offset {offset} and at {place[one.value]}")
        else:
            place[one.value] = offset
            before = last.setdefault(one.producer, one)
            if one.number < before.number:
                yield Finding(Anomaly.REORDERED, f"{one} at offset {offset} comes after message {before.number}")
            last[one.producer] = max(before, one, key=attrgetter("number"))


def _acked_findings(sent: Iterable[Sent], topics: TopicsRead) -> Iterator[Finding]:
    present = {where: set(topics.visible(where, committed_only=False).values()) for where in topics.everything}
    for one in sent:
        if one.offset is None:
            continue
        if one.value not in present.get(one.where, ()):
            yield Finding(Anomaly.LOST, f"{one}, acknowledged at offset {one.offset}")
        elif one.offset >= 0 and topics.visible(one.where, committed_only=False).get(one.offset) != one.value:
            yield Finding(Anomaly.INCONSISTENT_OFFSET, f"{one} is not at offset {one.offset}, as acknowledged")


def _order_of_answers(sent: Iterable[Sent]) -> Iterator[Finding]:
    """What is sent after an offset was known gets a greater one."""
    acked = sorted((one for one in sent if one.offset is not None and one.offset >= 0), key=attrgetter("where"))
    for _, group in groupby(acked, attrgetter("where")):
        yield from _order_in_partition(list(group))


def _order_in_partition(acked: list[Sent]) -> Iterator[Finding]:
    by_answer = iter(sorted(acked, key=attrgetter("acked_s")))
    answer = next(by_answer, None)
    greatest: Sent | None = None
    for one in sorted(acked, key=attrgetter("sent_s")):
        while answer is not None and answer.acked_s < one.sent_s:
            greatest = answer if greatest is None or (answer.offset or 0) > (greatest.offset or 0) else greatest
            answer = next(by_answer, None)
        if greatest is not None and (one.offset or 0) <= (greatest.offset or 0):
            yield Finding(
                Anomaly.REORDERED, f"{one} got offset {one.offset} although {greatest.offset} was known before"
            )
