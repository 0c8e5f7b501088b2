"""What the leaders of partitions know: where the log begins and ends, and how many bytes it takes on their disk.

Each leader is asked directly, all at the same time, and one that does not answer leaves its figures out: they are a
part of `topic describe` that must not keep the rest waiting. Where a direct connection is not possible (TLS, SASL),
librdkafka is asked for the offsets, and sizes are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import Error
from penstock.cli.connection import Connection
from penstock.cli.direct import DirectClient, can_ask
from penstock.cli.direct_security import Security, parse_security
from penstock.cli.failure import Failure
from penstock.cli.kafka_admin import AdminClient
from penstock.cli.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ask_offsets
from penstock.cli.places import Place, by_topic
from penstock.cli.topics import EARLIEST, LATEST, list_offsets
from penstock.wire.messages import k35_describe_log_dirs as k35

LEADER_TIMEOUT_S = 3.0
THREADS_MAX = 32

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LeaderFigures:
    """By partition; without those whose leader did not answer."""

    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    sizes: Mapping[Place, int]


def leader_figures(connection: Connection, admin: AdminClient, leaders: Mapping[Place, Any]) -> LeaderFigures:
    """The figures of these partitions, whose leaders are nodes with a host and a port."""
    if not can_ask(connection):
        return LeaderFigures(
            list_offsets(connection, admin, leaders, EARLIEST), list_offsets(connection, admin, leaders, LATEST), {}
        )
    by_leader: dict[Address, list[Place]] = defaultdict(list)
    for place, node in leaders.items():
        by_leader[node.host, node.port].append(place)
    if not by_leader:
        return LeaderFigures({}, {}, {})
    security = parse_security(connection.settings)
    with ThreadPoolExecutor(min(len(by_leader), THREADS_MAX)) as threads:
        answers = list(threads.map(lambda one: _ask(one[0], one[1], security), by_leader.items()))
    return LeaderFigures(
        {place: start for answer in answers for place, start in answer.starts.items()},
        {place: end for answer in answers for place, end in answer.ends.items()},
        {place: size for answer in answers for place, size in answer.sizes.items()},
    )


def _ask(address: Address, places: Sequence[Place], security: Security) -> LeaderFigures:
    try:
        with DirectClient(address, LEADER_TIMEOUT_S, security) as client:
            starts = _offsets(client, places, EARLIEST_TIMESTAMP)
            ends = _offsets(client, places, LATEST_TIMESTAMP)
            return LeaderFigures(starts, ends, _sizes(client, places))
    except Failure:
        return LeaderFigures({}, {}, {})


def _offsets(client: DirectClient, places: Sequence[Place], timestamp_ms: int) -> dict[Place, int]:
    answers = ask_offsets(client, places, timestamp_ms)
    return {place: offset for place, (code, offset) in answers.items() if code == Error.NONE}


def _sizes(client: DirectClient, places: Sequence[Place]) -> dict[Place, int]:
    topics = [
        k35.DescribeLogDirsRequestTopic(topic=topic, partitions=partitions)
        for topic, partitions in by_topic(places).items()
    ]
    answer = client.ask(k35.API.key, k35.DescribeLogDirsRequest(topics=topics), k35.DescribeLogDirsResponse)
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for folder in answer.results
        for topic in folder.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
