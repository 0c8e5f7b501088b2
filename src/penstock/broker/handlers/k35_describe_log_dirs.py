"""DescribeLogDirs (1-5): the log directories, what is in them and how much room they have."""

from __future__ import annotations

from penstock.base.errors import Error
from penstock.broker.broker import Broker
from penstock.broker.partition import Partition
from penstock.broker.requests import RequestContext
from penstock.log.log_directory import LogDirectory
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseDir,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseTopic,
)


async def handle(broker: Broker, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    if not broker.rights.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    held: dict[str, list[Partition]] = {}
    for partition in broker.partitions:
        if wanted is None or tuple(partition.name) in wanted:
            held.setdefault(broker.partitions.directory_of(partition).path, []).append(partition)
    cordoned = broker.settings.list("cordoned.log.dirs")
    results = [
        await _describe(broker, directory, held.get(directory.path, []), wanted, cordoned)
        for directory in broker.partitions.directories
    ]
    return DescribeLogDirsResponse(results=results)


async def _describe(
    broker: Broker,
    directory: LogDirectory,
    held: list[Partition],
    wanted: set[tuple[str, int]] | None,
    cordoned: list[str],
) -> DescribeLogDirsResponseDir:
    answer = DescribeLogDirsResponseDir(
        log_dir=directory.path, is_cordoned="*" in cordoned or directory.path in cordoned
    )
    if directory.offline is not None:
        answer.error_code = Error.KAFKA_STORAGE_ERROR
        return answer
    disk = broker.world.disk
    answer.total_bytes, answer.usable_bytes = await disk.run(
        "read", lambda: (disk.total_bytes(directory.path), disk.free_bytes(directory.path))
    )
    by_topic: dict[str, list[DescribeLogDirsResponsePartition]] = {}
    for partition in held:
        by_topic.setdefault(partition.name.topic, []).append(
            DescribeLogDirsResponsePartition(
                partition_index=partition.name.partition,
                partition_size=partition.log.size_bytes,
                offset_lag=max(0, partition.high_watermark - partition.log.end_offset),
            )
        )
    for move in broker.replica_moves:
        future = move.future
        if move.target is directory and future is not None and (wanted is None or tuple(move.name) in wanted):
            by_topic.setdefault(move.name.topic, []).append(
                DescribeLogDirsResponsePartition(
                    partition_index=move.name.partition,
                    partition_size=future.size_bytes,
                    offset_lag=max(0, move.partition.log.end_offset - future.end_offset),
                    is_future_key=True,
                )
            )
    answer.topics = [DescribeLogDirsResponseTopic(name=name, partitions=parts) for name, parts in by_topic.items()]
    return answer
