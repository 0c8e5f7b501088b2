"""ElectLeaders (key 43): elect preferred leaders again, or any live replica. 1: the kind of election."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class ElectLeadersRequestTopic:
    topic: str = field("0+")
    partitions: list[int32] = field("0+")


@message("0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int8 = field("1+")
    topic_partitions: list[ElectLeadersRequestTopic] | None = field("0+", nullable="0+")
    timeout_ms: int32 = field("0+", default=60000)


@struct
class ElectLeadersResponsePartition:
    partition_id: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")


@struct
class ElectLeadersResponseTopic:
    topic: str = field("0+")
    partition_result: list[ElectLeadersResponsePartition] = field("0+")


@message("0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("1+", ignorable=True)
    replica_election_results: list[ElectLeadersResponseTopic] = field("0+")


API = Api(43, "ElectLeaders", ElectLeadersRequest, ElectLeadersResponse)
