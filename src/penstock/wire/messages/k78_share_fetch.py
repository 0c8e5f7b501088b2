"""ShareFetch (key 78): acquire records for a member of a share group, and acknowledge earlier ones.

- 2: how strictly the limit on records holds; renewing the lock on a record.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import Records, field, int8, int16, int32, int64, message, struct


@struct
class ShareFetchRequestAcknowledgementBatch:
    first_offset: int64 = field("0+")
    last_offset: int64 = field("0+")
    acknowledge_types: list[int8] = field("0+")


@struct
class ShareFetchRequestPartition:
    partition_index: int32 = field("0+")
    acknowledgement_batches: list[ShareFetchRequestAcknowledgementBatch] = field("0+")


@struct
class ShareFetchRequestTopic:
    topic_id: UUID = field("0+")
    partitions: list[ShareFetchRequestPartition] = field("0+")


@struct
class ShareFetchRequestForgottenTopic:
    topic_id: UUID = field("0+")
    partitions: list[int32] = field("0+")


@message("1-2", flexible="0+")
class ShareFetchRequest:
    group_id: str | None = field("0+", nullable="0+", default=None)
    member_id: str | None = field("0+", nullable="0+")
    share_session_epoch: int32 = field("0+")
    max_wait_ms: int32 = field("0+")
    min_bytes: int32 = field("0+")
    max_bytes: int32 = field("0+", default=0x7FFFFFFF)
    max_records: int32 = field("1+")
    batch_size: int32 = field("1+")
    share_acquire_mode: int8 = field("2+", ignorable=True)
    is_renew_ack: bool = field("2+")
    topics: list[ShareFetchRequestTopic] = field("0+")
    forgotten_topics_data: list[ShareFetchRequestForgottenTopic] = field("0+")


@struct
class ShareFetchResponseLeaderIdAndEpoch:
    leader_id: int32 = field("0+")
    leader_epoch: int32 = field("0+")


@struct
class ShareFetchResponseAcquiredRecords:
    first_offset: int64 = field("0+")
    last_offset: int64 = field("0+")
    delivery_count: int16 = field("0+")


@struct
class ShareFetchResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    acknowledge_error_code: int16 = field("0+")
    acknowledge_error_message: str | None = field("0+", nullable="0+", default=None)
    current_leader: ShareFetchResponseLeaderIdAndEpoch = field("0+")
    records: Records | None = field("0+", nullable="0")
    acquired_records: list[ShareFetchResponseAcquiredRecords] = field("0+")


@struct
class ShareFetchResponseTopic:
    topic_id: UUID = field("0+")
    partitions: list[ShareFetchResponsePartition] = field("0+")


@struct
class ShareFetchResponseNodeEndpoint:
    node_id: int32 = field("0+")
    host: str = field("0+")
    port: int32 = field("0+")
    rack: str | None = field("0+", nullable="0+", default=None)


@message("1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int32 = field("1+")
    responses: list[ShareFetchResponseTopic] = field("0+")
    node_endpoints: list[ShareFetchResponseNodeEndpoint] = field("0+")


API = Api(78, "ShareFetch", ShareFetchRequest, ShareFetchResponse)
