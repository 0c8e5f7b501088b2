"""OffsetDelete (key 47): forget offsets of topics that a group no longer reads."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: int32 = field("0+")


@struct
class OffsetDeleteRequestTopic:
    name: str = field("0+")
    partitions: list[OffsetDeleteRequestPartition] = field("0+")


@message("0")
class OffsetDeleteRequest:
    group_id: str = field("0+")
    topics: list[OffsetDeleteRequestTopic] = field("0+")


@struct
class OffsetDeleteResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")


@struct
class OffsetDeleteResponseTopic:
    name: str = field("0+")
    partitions: list[OffsetDeleteResponsePartition] = field("0+")


@message("0")
class OffsetDeleteResponse:
    error_code: int16 = field("0+")
    throttle_time_ms: int32 = field("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field("0+")


API = Api(47, "OffsetDelete", OffsetDeleteRequest, OffsetDeleteResponse)
