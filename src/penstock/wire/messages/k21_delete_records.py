"""DeleteRecords (key 21): move the start of a log forward, so that what lies before is gone."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class DeleteRecordsRequestPartition:
    partition_index: int32 = field("0+")
    offset: int64 = field("0+")


@struct
class DeleteRecordsRequestTopic:
    name: str = field("0+")
    partitions: list[DeleteRecordsRequestPartition] = field("0+")


@message("0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsRequestTopic] = field("0+")
    timeout_ms: int32 = field("0+")


@struct
class DeleteRecordsResponsePartition:
    partition_index: int32 = field("0+")
    low_watermark: int64 = field("0+")
    error_code: int16 = field("0+")


@struct
class DeleteRecordsResponseTopic:
    name: str = field("0+")
    partitions: list[DeleteRecordsResponsePartition] = field("0+")


@message("0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int32 = field("0+")
    topics: list[DeleteRecordsResponseTopic] = field("0+")


API = Api(21, "DeleteRecords", DeleteRecordsRequest, DeleteRecordsResponse)
