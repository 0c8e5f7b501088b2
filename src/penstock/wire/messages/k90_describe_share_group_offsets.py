"""DescribeShareGroupOffsets (key 90): where share groups start reading. 1: their lag."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = field("0+")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field("0+", nullable="0+")


@message("0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field("0+")


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int32 = field("0+")
    start_offset: int64 = field("0+")
    leader_epoch: int32 = field("0+")
    lag: int64 = field("1+", default=-1, ignorable=True)
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = field("0+")
    topic_id: UUID = field("0+")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field("0+")


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = field("0+")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)


@message("0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int32 = field("0+")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field("0+")


API = Api(90, "DescribeShareGroupOffsets", DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse)
