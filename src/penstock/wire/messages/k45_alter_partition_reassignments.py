"""AlterPartitionReassignments (key 45): give partitions other replicas, or take such an order back.

- 1: whether the number of replicas may change.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class AlterPartitionReassignmentsRequestPartition:
    partition_index: int32 = field("0+")
    replicas: list[int32] | None = field("0+", nullable="0+", default=None)


@struct
class AlterPartitionReassignmentsRequestTopic:
    name: str = field("0+")
    partitions: list[AlterPartitionReassignmentsRequestPartition] = field("0+")


@message("0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int32 = field("0+", default=60000)
    allow_replication_factor_change: bool = field("1+", default=True)
    topics: list[AlterPartitionReassignmentsRequestTopic] = field("0+")


@struct
class AlterPartitionReassignmentsResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")


@struct
class AlterPartitionReassignmentsResponseTopic:
    name: str = field("0+")
    partitions: list[AlterPartitionReassignmentsResponsePartition] = field("0+")


@message("0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int32 = field("0+")
    allow_replication_factor_change: bool = field("1+", default=True, ignorable=True)
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    responses: list[AlterPartitionReassignmentsResponseTopic] = field("0+")


API = Api(45, "AlterPartitionReassignments", AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse)
