"""Topics read from their beginning to their end, with and without what is not committed, for the judge of histories."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Stored, TopicsRead

from .aiokafka_client import AiokafkaClient
from .client import Client, Message
from .cluster_site import KILLED_S

LAST = b"the last one "
FINDINGS_SHOWN = 20


def is_last(message: Message) -> bool:
    """Was it written by `read_topics`?"""
    return (message.value or b"").startswith(LAST)


def read_topics(bootstrap: str, partitions: Sequence[TopicPartition]) -> TopicsRead:
    """All partitions of one topic. A last message in each shows where the end is: markers have offsets, too."""
    last = LAST + uuid4().hex.encode()
    client = AiokafkaClient(bootstrap)  # the quickest one
    try:
        client.produce(partitions[0].topic, [Message(last, partition=where.partition) for where in partitions])
        everything, committed = (_read(client, partitions, last, committed_only=only) for only in (False, True))
    finally:
        client.close()
    return TopicsRead(everything, committed)


def judge(history: ClientHistory, topics: TopicsRead) -> None:
    """Fail with everything that is wrong."""
    for killed_s in KILLED_S:
        history.interrupted(killed_s)
    findings = history.findings(topics)
    if findings:
        shown = "\n".join(map(str, findings[:FINDINGS_SHOWN]))
        raise AssertionError(f"{len(findings)} findings:\n{shown}")


def _read(
    client: Client, partitions: Sequence[TopicPartition], last: bytes, *, committed_only: bool
) -> dict[TopicPartition, list[Stored]]:
    found: dict[TopicPartition, list[Stored]] = {where: [] for where in partitions}
    unfinished = set(partitions)
    numbers = [where.partition for where in partitions]
    with client.reader(partitions[0].topic, numbers, committed_only=committed_only) as reader:
        while unfinished:
            (one,) = reader.read(1)
            assert one.partition is not None
            where = TopicPartition(partitions[0].topic, one.partition)
            if one.value == last:
                unfinished.discard(where)
            else:
                found[where].append(Stored(one.offset, one.value))
    return found
