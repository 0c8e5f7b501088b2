"""Produce (key 0): append record batches to partitions.

- 3: the transactional id, and record batches of format 2. Versions 0-2 are declared only so that they can be refused
  politely: some clients must see them advertised (see the API table), none should use them.
- 5: the log's start offset in the answer. 7: zstd. 8: which records of a batch were at fault, and why.
- 10: an answer that says "not the leader" names the leader and its address.
- 12: a transactional write also adds its partition to the transaction. 13: topics by id.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import Records, field, int16, int32, int64, message, struct


@struct
class ProduceRequestPartition:
    index: int32 = field("0+")
    records: Records | None = field("0+", nullable="0+", default=None)


@struct
class ProduceRequestTopic:
    name: str = field("0-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)
    partition_data: list[ProduceRequestPartition] = field("0+")


@message("0-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = field("3+", nullable="3+", default=None)
    acks: int16 = field("0+")
    timeout_ms: int32 = field("0+")
    topic_data: list[ProduceRequestTopic] = field("0+")


@struct
class ProduceResponseRecordError:
    batch_index: int32 = field("8+")
    batch_index_error_message: str | None = field("8+", nullable="8+", default=None)


@struct
class ProduceResponseLeaderIdAndEpoch:
    leader_id: int32 = field("10+", default=-1)
    leader_epoch: int32 = field("10+", default=-1)


@struct
class ProduceResponsePartition:
    index: int32 = field("0+")
    error_code: int16 = field("0+")
    base_offset: int64 = field("0+")
    log_append_time_ms: int64 = field("2+", default=-1, ignorable=True)
    log_start_offset: int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[ProduceResponseRecordError] = field("8+", ignorable=True)
    error_message: str | None = field("8+", nullable="8+", default=None, ignorable=True)
    current_leader: ProduceResponseLeaderIdAndEpoch = field("10+", tag=0)


@struct
class ProduceResponseTopic:
    name: str = field("0-12", ignorable=True)
    topic_id: UUID = field("13+", ignorable=True)
    partition_responses: list[ProduceResponsePartition] = field("0+")


@struct
class ProduceResponseNodeEndpoint:
    node_id: int32 = field("10+")
    host: str = field("10+")
    port: int32 = field("10+")
    rack: str | None = field("10+", nullable="10+", default=None)


@message("0-13", flexible="9+")
class ProduceResponse:
    responses: list[ProduceResponseTopic] = field("0+")
    throttle_time_ms: int32 = field("1+", ignorable=True)
    node_endpoints: list[ProduceResponseNodeEndpoint] = field("10+", tag=0)


API = Api(0, "Produce", ProduceRequest, ProduceResponse)
