"""ListPartitionReassignments (key 46): the reassignments that are under way."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class ListPartitionReassignmentsRequestTopic:
    name: str = field("0+")
    partition_indexes: list[int32] = field("0+")


@message("0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int32 = field("0+", default=60000)
    topics: list[ListPartitionReassignmentsRequestTopic] | None = field("0+", nullable="0+", default=None)


@struct
class ListPartitionReassignmentsResponsePartition:
    partition_index: int32 = field("0+")
    replicas: list[int32] = field("0+")
    adding_replicas: list[int32] = field("0+")
    removing_replicas: list[int32] = field("0+")


@struct
class ListPartitionReassignmentsResponseTopic:
    name: str = field("0+")
    partitions: list[ListPartitionReassignmentsResponsePartition] = field("0+")


@message("0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    topics: list[ListPartitionReassignmentsResponseTopic] = field("0+")


API = Api(46, "ListPartitionReassignments", ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse)
