"""ShareAcknowledge (key 79): accept, release or reject acquired records. 2: renewing the lock on a record."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, int64, message, struct


@struct
class ShareAcknowledgeRequestBatch:
    first_offset: int64 = field("0+")
    last_offset: int64 = field("0+")
    acknowledge_types: list[int8] = field("0+")


@struct
class ShareAcknowledgeRequestPartition:
    partition_index: int32 = field("0+")
    acknowledgement_batches: list[ShareAcknowledgeRequestBatch] = field("0+")


@struct
class ShareAcknowledgeRequestTopic:
    topic_id: UUID = field("0+")
    partitions: list[ShareAcknowledgeRequestPartition] = field("0+")


@message("1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: str | None = field("0+", nullable="0+", default=None)
    member_id: str | None = field("0+", nullable="0+")
    share_session_epoch: int32 = field("0+")
    is_renew_ack: bool = field("2+")
    topics: list[ShareAcknowledgeRequestTopic] = field("0+")


@struct
class ShareAcknowledgeResponseLeaderIdAndEpoch:
    leader_id: int32 = field("0+")
    leader_epoch: int32 = field("0+")


@struct
class ShareAcknowledgeResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    current_leader: ShareAcknowledgeResponseLeaderIdAndEpoch = field("0+")


@struct
class ShareAcknowledgeResponseTopic:
    topic_id: UUID = field("0+")
    partitions: list[ShareAcknowledgeResponsePartition] = field("0+")


@struct
class ShareAcknowledgeResponseNodeEndpoint:
    node_id: int32 = field("0+")
    host: str = field("0+")
    port: int32 = field("0+")
    rack: str | None = field("0+", nullable="0+", default=None)


@message("1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int32 = field("2+", ignorable=True)
    responses: list[ShareAcknowledgeResponseTopic] = field("0+")
    node_endpoints: list[ShareAcknowledgeResponseNodeEndpoint] = field("0+")


API = Api(79, "ShareAcknowledge", ShareAcknowledgeRequest, ShareAcknowledgeResponse)
