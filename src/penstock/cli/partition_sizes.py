"""The bytes that each partition takes on the disk of its leader, from DescribeLogDirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from penstock.cli.connection import Connection
from penstock.cli.direct import DirectClient, can_ask
from penstock.cli.failure import Failure
from penstock.cli.places import Place
from penstock.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
)

DESCRIBE_LOG_DIRS_KEY = 35


def partition_sizes(connection: Connection, leaders: Mapping[Place, Any]) -> dict[Place, int]:
    """Sizes by partition; one that cannot be had is left out, for they are a nicety of `topic describe`."""
    sizes: dict[Place, int] = {}
    if not can_ask(connection):
        return sizes
    by_broker: dict[tuple[str, int], list[Place]] = defaultdict(list)
    for place, node in leaders.items():
        by_broker[node.host, node.port].append(place)
    for address, places in by_broker.items():
        try:
            sizes.update(_sizes_on(address, places))
        except Failure:
            continue
    return sizes


def _sizes_on(address: tuple[str, int], places: list[Place]) -> dict[Place, int]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in places:
        by_topic[topic].append(partition)
    topics = [DescribeLogDirsRequestTopic(topic=topic, partitions=parts) for topic, parts in by_topic.items()]
    with DirectClient(address) as client:
        answer = client.ask(DESCRIBE_LOG_DIRS_KEY, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for folder in answer.results
        for topic in folder.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
