"""TxnOffsetCommit (key 28): commit offsets as part of a transaction.

- 2: leader epochs. 3: member and generation, for fencing. 5: also adds the group to the transaction.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int32 = field("0+")
    committed_offset: int64 = field("0+")
    committed_leader_epoch: int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: str | None = field("0+", nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = field("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = field("0+")


@message("0-5", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = field("0+")
    group_id: str = field("0+")
    producer_id: int64 = field("0+")
    producer_epoch: int16 = field("0+")
    generation_id: int32 = field("3+", default=-1)
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field("0+")


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")


@struct
class TxnOffsetCommitResponseTopic:
    name: str = field("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = field("0+")


@message("0-5", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int32 = field("0+")
    topics: list[TxnOffsetCommitResponseTopic] = field("0+")


API = Api(28, "TxnOffsetCommit", TxnOffsetCommitRequest, TxnOffsetCommitResponse)
