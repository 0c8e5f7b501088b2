"""DeleteTopics (key 20). 5: an error message; may be throttled. 6: by topic id as well."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class DeleteTopicsRequestTopic:
    name: str | None = field("6+", nullable="6+", default=None)
    topic_id: UUID = field("6+")


@message("1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicsRequestTopic] = field("6+")
    topic_names: list[str] = field("0-5", ignorable=True)
    timeout_ms: int32 = field("0+")


@struct
class DeleteTopicsResponseTopic:
    name: str | None = field("0+", nullable="6+")
    topic_id: UUID = field("6+", ignorable=True)
    error_code: int16 = field("0+")
    error_message: str | None = field("5+", nullable="5+", default=None, ignorable=True)


@message("1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int32 = field("1+", ignorable=True)
    responses: list[DeleteTopicsResponseTopic] = field("0+")


API = Api(20, "DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse)
