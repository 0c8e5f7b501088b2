"""Fetch (key 1): read record batches from partitions; consumers and followers use the same request.

- 5: start offset of the log. 7: sessions, so that a request carries only what changed. 9: leader epoch, for fencing.
- 10: zstd. 11: the rack, and the replica that would be better to read from.
- 12: epoch of the last record, so that the leader can point out where two logs part.
- 13: topics by id. 15: replica id and epoch in one tagged struct. 16: addresses of new leaders.
- 17: the follower's directory. 18: the high watermark the follower knows.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import Records, field, int8, int16, int32, int64, message, struct


@struct
class FetchRequestReplicaState:
    replica_id: int32 = field("15+", default=-1)
    replica_epoch: int64 = field("15+", default=-1)


@struct
class FetchRequestPartition:
    partition: int32 = field("0+")
    current_leader_epoch: int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: int64 = field("0+")
    last_fetched_epoch: int32 = field("12+", default=-1)
    log_start_offset: int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: int32 = field("0+")
    replica_directory_id: UUID = field("17+", tag=0, ignorable=True)
    high_watermark: int64 = field("18+", default=9223372036854775807, tag=1, ignorable=True)


@struct
class FetchRequestTopic:
    topic: str = field("0-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)
    partitions: list[FetchRequestPartition] = field("0+")


@struct
class FetchRequestForgottenTopic:
    topic: str = field("7-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)
    partitions: list[int32] = field("7+")


@message("4-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = field("12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int32 = field("0-14", default=-1)
    replica_state: FetchRequestReplicaState = field("15+", tag=1)
    max_wait_ms: int32 = field("0+")
    min_bytes: int32 = field("0+")
    max_bytes: int32 = field("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int8 = field("4+", ignorable=True)
    session_id: int32 = field("7+", ignorable=True)
    session_epoch: int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchRequestTopic] = field("0+")
    forgotten_topics_data: list[FetchRequestForgottenTopic] = field("7+")
    rack_id: str = field("11+", ignorable=True)


@struct
class FetchResponseEpochEndOffset:
    epoch: int32 = field("12+", default=-1)
    end_offset: int64 = field("12+", default=-1)


@struct
class FetchResponseLeaderIdAndEpoch:
    leader_id: int32 = field("12+", default=-1)
    leader_epoch: int32 = field("12+", default=-1)


@struct
class FetchResponseSnapshotId:
    end_offset: int64 = field("0+", default=-1)
    epoch: int32 = field("0+", default=-1)


@struct
class FetchResponseAbortedTransaction:
    producer_id: int64 = field("4+")
    first_offset: int64 = field("4+")


@struct
class FetchResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")
    high_watermark: int64 = field("0+")
    last_stable_offset: int64 = field("4+", default=-1, ignorable=True)
    log_start_offset: int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: FetchResponseEpochEndOffset = field("12+", tag=0)
    current_leader: FetchResponseLeaderIdAndEpoch = field("12+", tag=1)
    snapshot_id: FetchResponseSnapshotId = field("12+", tag=2)
    aborted_transactions: list[FetchResponseAbortedTransaction] | None = field("4+", nullable="4+", ignorable=True)
    preferred_read_replica: int32 = field("11+", default=-1)
    records: Records | None = field("0+", nullable="0+", default=None)


@struct
class FetchResponseTopic:
    topic: str = field("0-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)
    partitions: list[FetchResponsePartition] = field("0+")


@struct
class FetchResponseNodeEndpoint:
    node_id: int32 = field("16+")
    host: str = field("16+")
    port: int32 = field("16+")
    rack: str | None = field("16+", nullable="16+", default=None)


@message("4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field("7+", ignorable=True)
    session_id: int32 = field("7+")
    responses: list[FetchResponseTopic] = field("0+")
    node_endpoints: list[FetchResponseNodeEndpoint] = field("16+", tag=0)


API = Api(1, "Fetch", FetchRequest, FetchResponse)
