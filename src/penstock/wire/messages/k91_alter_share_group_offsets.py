"""AlterShareGroupOffsets (key 91): set where an empty share group starts reading."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int32 = field("0+")
    start_offset: int64 = field("0+")


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = field("0+")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field("0+")


@message("0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str = field("0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = field("0+")


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = field("0+")
    topic_id: UUID = field("0+")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field("0+")


@message("0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field("0+")


API = Api(91, "AlterShareGroupOffsets", AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse)
