"""OffsetForLeaderEpoch (key 23): where a leader's epoch ends in the log; finds the point where two logs part.

- 2: the current leader epoch, for fencing. 3: who asks.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class OffsetForLeaderEpochRequestPartition:
    partition: int32 = field("0+")
    current_leader_epoch: int32 = field("2+", default=-1, ignorable=True)
    leader_epoch: int32 = field("0+")


@struct
class OffsetForLeaderEpochRequestTopic:
    topic: str = field("0+")
    partitions: list[OffsetForLeaderEpochRequestPartition] = field("0+")


@message("2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderEpochRequestTopic] = field("0+")


@struct
class OffsetForLeaderEpochResponsePartition:
    error_code: int16 = field("0+")
    partition: int32 = field("0+")
    leader_epoch: int32 = field("1+", default=-1, ignorable=True)
    end_offset: int64 = field("0+", default=-1)


@struct
class OffsetForLeaderEpochResponseTopic:
    topic: str = field("0+")
    partitions: list[OffsetForLeaderEpochResponsePartition] = field("0+")


@message("2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int32 = field("2+", ignorable=True)
    topics: list[OffsetForLeaderEpochResponseTopic] = field("0+")


API = Api(23, "OffsetForLeaderEpoch", OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
