"""DeleteShareGroupOffsets (key 92): forget the topics that an empty share group reads."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = field("0+")


@message("0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str = field("0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field("0+")


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = field("0+")
    topic_id: UUID = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)


@message("0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field("0+")


API = Api(92, "DeleteShareGroupOffsets", DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse)
