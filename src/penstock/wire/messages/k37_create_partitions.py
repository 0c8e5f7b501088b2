"""CreatePartitions (key 37): give a topic more partitions. 3: may be throttled."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class CreatePartitionsRequestAssignment:
    broker_ids: list[int32] = field("0+")


@struct
class CreatePartitionsRequestTopic:
    name: str = field("0+")
    count: int32 = field("0+")
    assignments: list[CreatePartitionsRequestAssignment] | None = field("0+", nullable="0+")


@message("0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsRequestTopic] = field("0+")
    timeout_ms: int32 = field("0+")
    validate_only: bool = field("0+")


@struct
class CreatePartitionsResponseTopic:
    name: str = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)


@message("0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int32 = field("0+")
    results: list[CreatePartitionsResponseTopic] = field("0+")


API = Api(37, "CreatePartitions", CreatePartitionsRequest, CreatePartitionsResponse)
