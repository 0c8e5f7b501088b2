"""AlterReplicaLogDirs (key 34): move replicas to another log directory of the same broker."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class AlterReplicaLogDirsRequestTopic:
    name: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class AlterReplicaLogDirsRequestDir:
    path: str = field("0+")
    topics: list[AlterReplicaLogDirsRequestTopic] = field("0+")


@message("1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDirsRequestDir] = field("0+")


@struct
class AlterReplicaLogDirsResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")


@struct
class AlterReplicaLogDirsResponseTopic:
    topic_name: str = field("0+")
    partitions: list[AlterReplicaLogDirsResponsePartition] = field("0+")


@message("1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int32 = field("0+")
    results: list[AlterReplicaLogDirsResponseTopic] = field("0+")


API = Api(34, "AlterReplicaLogDirs", AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
