"""Offsets of many partitions at once: the first, the last, or those that belong to a time.

Each leader is asked once for all of its partitions, and all leaders at the same time. What a leader refuses is asked
again, of whoever leads then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.columnar.cluster import Cluster
from penstock.columnar.connection import Connection, Pending
from penstock.columnar.errors import error_of
from penstock.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)

LATEST = -1
EARLIEST = -2


def offsets_at(
    cluster: Cluster, partitions: Sequence[TopicPartition], when: int, *, committed: bool
) -> dict[TopicPartition, int | None]:
    """The offset of each partition at `when`: LATEST (the next one to be written, or with `committed` the last stable
    one), EARLIEST, or a time in ms: then that of the first record that is not older, None if there is none."""
    found: dict[TopicPartition, int | None] = {}

    def attempt() -> dict[TopicPartition, int | None]:
        missing = [where for where in partitions if where not in found]
        _ask_leaders(cluster, missing, when, committed, found)
        left_out = [where for where in missing if where not in found]
        if left_out:
            raise ApiError(Error.OFFSET_NOT_AVAILABLE, f"{left_out[0]}: its leader does not say")
        return found

    topics = ", ".join(sorted({where.topic for where in partitions}))
    return cluster.retry(attempt, f"look up offsets of {topics}")


def _ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    when: int,
    committed: bool,
    found: dict[TopicPartition, int | None],
) -> None:
    """ApiError or OSError, once all that can be found is found."""
    by_leader: defaultdict[Connection, list[TopicPartition]] = defaultdict(list)
    for where in partitions:
        by_leader[cluster.leader(where)].append(where)
    failure: ApiError | OSError | None = None
    asked: list[Pending] = []
    for connection, ours in by_leader.items():
        try:
            asked.append(connection.send(_request(cluster, ours, when, committed)))
        except OSError as error:
            failure = error
    for pending in asked:
        try:
            failure = _take(cluster, pending.wait(), when, found) or failure
        except OSError as error:
            failure = error
    if failure is not None:
        raise failure


def _request(cluster: Cluster, partitions: list[TopicPartition], when: int, committed: bool) -> ListOffsetsRequest:
    rows: defaultdict[str, list[ListOffsetsRequestPartition]] = defaultdict(list)
    for where in partitions:
        epoch = cluster.leader_epoch(where)
        row = ListOffsetsRequestPartition(partition_index=where.partition, current_leader_epoch=epoch, timestamp=when)
        rows[where.topic].append(row)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsRequestTopic(name=name, partitions=of_topic) for name, of_topic in rows.items()],
        timeout_ms=int(cluster.settings.request_timeout_s * 1000),
    )


def _take(
    cluster: Cluster, answer: ListOffsetsResponse, when: int, found: dict[TopicPartition, int | None]
) -> ApiError | None:
    failure = None
    for topic in answer.topics:
        for row in topic.partitions:
            where = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                cluster.stale(where)
                error = error_of(row.error_code)
                failure = ApiError(error, f"{where}: {error.text}")
            elif when >= 0 or row.offset >= 0:
                found[where] = row.offset if row.offset >= 0 else None
    return failure
