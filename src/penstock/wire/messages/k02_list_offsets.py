"""ListOffsets (key 2): the offset that belongs to a time, or to one of the special times (earliest, latest and so on).

- 2: isolation level. 4: leader epoch, for fencing. 5: the answer may be that the offset is not available yet.
- 7: the record with the largest timestamp (-3). 8: the start of the local log (-4). 9: the end of the tiered part (-5).
- 10: a timeout, for lookups in remote storage. 11: the first offset not yet uploaded (-6).
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, int64, message, struct


@struct
class ListOffsetsRequestPartition:
    partition_index: int32 = field("0+")
    current_leader_epoch: int32 = field("4+", default=-1, ignorable=True)
    timestamp: int64 = field("0+")


@struct
class ListOffsetsRequestTopic:
    name: str = field("0+")
    partitions: list[ListOffsetsRequestPartition] = field("0+")


@message("1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int32 = field("0+")
    isolation_level: int8 = field("2+")
    topics: list[ListOffsetsRequestTopic] = field("0+")
    timeout_ms: int32 = field("10+", ignorable=True)


@struct
class ListOffsetsResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")
    timestamp: int64 = field("1+", default=-1)
    offset: int64 = field("1+", default=-1)
    leader_epoch: int32 = field("4+", default=-1)


@struct
class ListOffsetsResponseTopic:
    name: str = field("0+")
    partitions: list[ListOffsetsResponsePartition] = field("0+")


@message("1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int32 = field("2+", ignorable=True)
    topics: list[ListOffsetsResponseTopic] = field("0+")


API = Api(2, "ListOffsets", ListOffsetsRequest, ListOffsetsResponse)
