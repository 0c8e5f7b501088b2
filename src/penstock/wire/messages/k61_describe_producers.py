"""DescribeProducers (key 61): the producers that are active on partitions; finds hanging transactions."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class DescribeProducersRequestTopic:
    name: str = field("0+")
    partition_indexes: list[int32] = field("0+")


@message("0", flexible="0+")
class DescribeProducersRequest:
    topics: list[DescribeProducersRequestTopic] = field("0+")


@struct
class DescribeProducersResponseProducer:
    producer_id: int64 = field("0+")
    producer_epoch: int32 = field("0+")
    last_sequence: int32 = field("0+", default=-1)
    last_timestamp: int64 = field("0+", default=-1)
    coordinator_epoch: int32 = field("0+")
    current_txn_start_offset: int64 = field("0+", default=-1)


@struct
class DescribeProducersResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    active_producers: list[DescribeProducersResponseProducer] = field("0+")


@struct
class DescribeProducersResponseTopic:
    name: str = field("0+")
    partitions: list[DescribeProducersResponsePartition] = field("0+")


@message("0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int32 = field("0+")
    topics: list[DescribeProducersResponseTopic] = field("0+")


API = Api(61, "DescribeProducers", DescribeProducersRequest, DescribeProducersResponse)
