"""OffsetCommit (key 8): store how far a group has read.

- 2-4: the client says how long to keep it. 3: throttle time. 6: leader epoch of the record before the offset.
- 7: static members. 9: also for groups of the newer protocol. 10: topics by id.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class OffsetCommitRequestPartition:
    partition_index: int32 = field("0+")
    committed_offset: int64 = field("0+")
    committed_leader_epoch: int32 = field("6+", default=-1, ignorable=True)
    committed_metadata: str | None = field("0+", nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = field("0-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field("0+")


@message("2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = field("0+")
    generation_id_or_member_epoch: int32 = field("1+", default=-1, ignorable=True)
    member_id: str = field("1+", ignorable=True)
    group_instance_id: str | None = field("7+", nullable="7+", default=None)
    retention_time_ms: int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field("0+")


@struct
class OffsetCommitResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")


@struct
class OffsetCommitResponseTopic:
    name: str = field("0-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field("0+")


@message("2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int32 = field("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field("0+")


API = Api(8, "OffsetCommit", OffsetCommitRequest, OffsetCommitResponse)
