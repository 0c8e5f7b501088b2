"""Who may lead a partition when nobody in sync can: eligible leaders, from DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.errors import Error
from penstock.cli.connection import Connection
from penstock.cli.direct import DirectClient, can_ask, connect_directly
from penstock.cli.failure import Failure
from penstock.cli.places import Place
from penstock.wire.messages import k75_describe_topic_partitions as k75


def eligible_leaders(connection: Connection, topics: Sequence[str]) -> dict[Place, list[int]]:
    """By partition; empty where a broker cannot say, for they are a nicety of `topic describe`."""
    if not can_ask(connection):
        return {}
    try:
        with connect_directly(connection) as client:
            return _ask_in_pages(client, topics) if k75.API.key in client.versions else {}
    except Failure:
        return {}


def _ask_in_pages(client: DirectClient, topics: Sequence[str]) -> dict[Place, list[int]]:
    found: dict[Place, list[int]] = {}
    request = k75.DescribeTopicPartitionsRequest(
        topics=[k75.DescribeTopicPartitionsRequestTopic(name=topic) for topic in sorted(topics)]
    )
    while True:
        answer = client.ask(k75.API.key, request, k75.DescribeTopicPartitionsResponse)
        for topic in answer.topics:
            if topic.error_code != Error.NONE:
                continue
            for partition in topic.partitions:
                eligible = partition.eligible_leader_replicas or []
                found[str(topic.name), partition.partition_index] = list(eligible)
        if answer.next_cursor is None:
            return found
        request.cursor = k75.DescribeTopicPartitionsRequestCursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
