"""Committing how far one has read to a consumer group, without being a member of it.

A reader that keeps its own offsets, as a Spark query does in its checkpoint, commits them only to be seen: every tool
that shows the lag of groups then shows its lag.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.columnar.cluster import GROUP, Cluster
from penstock.columnar.errors import UnknownTopic, error_of
from penstock.wire.messages import k08_offset_commit
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

NO_GENERATION = -1
_BY_NAME_UNTIL = 9
_HAS_MEMBERS = frozenset({Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION, Error.REBALANCE_IN_PROGRESS})


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit the next offset of each partition; Refused if the group has members of its own."""
    if not offsets:
        return
    rows: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for where, offset in offsets.items():
        row = OffsetCommitRequestPartition(
            partition_index=where.partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        rows[where.topic].append(row)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=NO_GENERATION,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic, partitions in rows.items()],
    )

    def attempt() -> None:
        connection = cluster.coordinator(group, GROUP)
        version = connection.version_of(k08_offset_commit.API, _BY_NAME_UNTIL)
        _check(group, connection.ask(request, version))

    cluster.retry(attempt, f"commit offsets to group {group}")


def _check(group: str, answer: OffsetCommitResponse) -> None:
    for topic in answer.topics:
        for row in topic.partitions:
            error = error_of(row.error_code)
            if error == Error.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(
                    topic.name, f"group {group} cannot have an offset of its partition {row.partition_index}"
                )
            if error in _HAS_MEMBERS:
                raise ApiError(error, f"group {group} has members of its own, so nobody else commits to it")
            if error:
                raise ApiError(error, f"{topic.name}-{row.partition_index}: {error.text}")
