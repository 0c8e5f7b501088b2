"""DescribeLogDirs (key 35): log directories and the sizes of the replicas in them.

- 3: an error code for the whole answer. 4: size and free space of the disk. 5: directories closed to new replicas.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class DescribeLogDirsRequestTopic:
    topic: str = field("0+")
    partitions: list[int32] = field("0+")


@message("1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribeLogDirsRequestTopic] | None = field("0+", nullable="0+")


@struct
class DescribeLogDirsResponsePartition:
    partition_index: int32 = field("0+")
    partition_size: int64 = field("0+")
    offset_lag: int64 = field("0+")
    is_future_key: bool = field("0+")


@struct
class DescribeLogDirsResponseTopic:
    name: str = field("0+")
    partitions: list[DescribeLogDirsResponsePartition] = field("0+")


@struct
class DescribeLogDirsResponseDir:
    error_code: int16 = field("0+")
    log_dir: str = field("0+")
    topics: list[DescribeLogDirsResponseTopic] = field("0+")
    total_bytes: int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: int64 = field("4+", default=-1, ignorable=True)
    is_cordoned: bool = field("5+", ignorable=True)


@message("1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("3+", ignorable=True)
    results: list[DescribeLogDirsResponseDir] = field("0+")


API = Api(35, "DescribeLogDirs", DescribeLogDirsRequest, DescribeLogDirsResponse)
