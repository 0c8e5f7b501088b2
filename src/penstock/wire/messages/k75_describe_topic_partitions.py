"""DescribeTopicPartitions (key 75): partitions of topics, page by page."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class DescribeTopicPartitionsRequestTopic:
    name: str = field("0+")


@struct
class DescribeTopicPartitionsRequestCursor:
    topic_name: str = field("0+")
    partition_index: int32 = field("0+")


@message("0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[DescribeTopicPartitionsRequestTopic] = field("0+")
    response_partition_limit: int32 = field("0+", default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = field("0+", nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int16 = field("0+")
    partition_index: int32 = field("0+")
    leader_id: int32 = field("0+")
    leader_epoch: int32 = field("0+", default=-1, ignorable=True)
    replica_nodes: list[int32] = field("0+")
    isr_nodes: list[int32] = field("0+")
    eligible_leader_replicas: list[int32] | None = field("0+", nullable="0+", default=None)
    last_known_elr: list[int32] | None = field("0+", nullable="0+", default=None)
    offline_replicas: list[int32] = field("0+", ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int16 = field("0+")
    name: str | None = field("0+", nullable="0+")
    topic_id: UUID = field("0+", ignorable=True)
    is_internal: bool = field("0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field("0+")
    topic_authorized_operations: int32 = field("0+", default=-2147483648)


@struct
class DescribeTopicPartitionsResponseCursor:
    topic_name: str = field("0+")
    partition_index: int32 = field("0+")


@message("0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int32 = field("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field("0+")
    next_cursor: DescribeTopicPartitionsResponseCursor | None = field("0+", nullable="0+", default=None)


API = Api(75, "DescribeTopicPartitions", DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
