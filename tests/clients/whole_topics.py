"""Topics read from their beginning to their end, with and without what is not committed, for the judge of histories."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.facts import Stored, TopicsRead

from .client import Client, Message


def read_topics(client: Client, partitions: Sequence[TopicPartition]) -> TopicsRead:
    """A last message in each partition shows where the end is: markers of transactions have offsets, too."""
    last = f"the last one {uuid4()}".encode()
    for where in partitions:
        client.produce(where.topic, [Message(last, partition=where.partition)])
    everything = {where: _read(client, where, last, committed_only=False) for where in partitions}
    committed = {where: _read(client, where, last, committed_only=True) for where in partitions}
    return TopicsRead(everything, committed)


def _read(client: Client, where: TopicPartition, last: bytes, *, committed_only: bool) -> list[Stored]:
    messages: list[Stored] = []
    with client.reader(where.topic, [where.partition], committed_only=committed_only) as reader:
        while True:
            (one,) = reader.read(1)
            if one.value == last:
                return messages
            messages.append(Stored(one.offset, one.value))
