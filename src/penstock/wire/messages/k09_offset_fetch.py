"""OffsetFetch (key 9): how far a group has read.

- 2: null asks for everything the group has committed; an error for the whole group. 5: leader epochs.
- 7: wait for offsets of open transactions to be decided. 8: several groups in one request, and its own layout.
- 9: member and epoch, for groups of the newer protocol. 10: topics by id.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class OffsetFetchRequestTopic:
    name: str = field("0-7")
    partition_indexes: list[int32] = field("0-7")


@struct
class OffsetFetchRequestGroupTopic:
    name: str = field("8-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partition_indexes: list[int32] = field("8+")


@struct
class OffsetFetchRequestGroup:
    group_id: str = field("8+")
    member_id: str | None = field("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestGroupTopic] | None = field("8+", nullable="8+")


@message("1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+")
    require_stable: bool = field("7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: int32 = field("0-7")
    committed_offset: int64 = field("0-7")
    committed_leader_epoch: int32 = field("5-7", default=-1, ignorable=True)
    metadata: str | None = field("0-7", nullable="0-7")
    error_code: int16 = field("0-7")


@struct
class OffsetFetchResponseTopic:
    name: str = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


@struct
class OffsetFetchResponseGroupPartition:
    partition_index: int32 = field("8+")
    committed_offset: int64 = field("8+")
    committed_leader_epoch: int32 = field("8+", default=-1, ignorable=True)
    metadata: str | None = field("8+", nullable="8+")
    error_code: int16 = field("8+")


@struct
class OffsetFetchResponseGroupTopic:
    name: str = field("8-9", ignorable=True)
    topic_id: UUID = field("10+", ignorable=True)
    partitions: list[OffsetFetchResponseGroupPartition] = field("8+")


@struct
class OffsetFetchResponseGroup:
    group_id: str = field("8+")
    topics: list[OffsetFetchResponseGroupTopic] = field("8+")
    error_code: int16 = field("8+")


@message("1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int32 = field("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: int16 = field("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+")


API = Api(9, "OffsetFetch", OffsetFetchRequest, OffsetFetchResponse)
