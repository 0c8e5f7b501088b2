"""One broker, asked for offsets of partitions (ListOffsets)."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cli.direct import DirectClient
from penstock.cli.places import Place, by_topic
from penstock.wire.messages import k02_list_offsets as k02

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
CONSUMER = -1
#: With the id that Kafka keeps for debugging a broker tells the end of its own copy, whoever leads.
ANY_REPLICA = -2
TIMEOUT_MS = 10_000


def ask_offsets(
    client: DirectClient,
    places: Iterable[Place],
    timestamp_ms: int,
    *,
    replica_id: int = CONSUMER,
    committed: bool = False,
) -> dict[Place, tuple[int, int]]:
    """(error code, offset) of each partition for a time; an offset of -1 is none."""
    topics = [
        k02.ListOffsetsRequestTopic(
            name=topic,
            partitions=[
                k02.ListOffsetsRequestPartition(partition_index=partition, timestamp=timestamp_ms)
                for partition in partitions
            ],
        )
        for topic, partitions in by_topic(places).items()
    ]
    request = k02.ListOffsetsRequest(
        replica_id=replica_id, isolation_level=int(committed), topics=topics, timeout_ms=TIMEOUT_MS
    )
    answer = client.ask(k02.API.key, request, k02.ListOffsetsResponse, lowest=2)
    return {
        (topic.name, partition.partition_index): (partition.error_code, partition.offset)
        for topic in answer.topics
        for partition in topic.partitions
    }
