"""WriteTxnMarkers (key 27): write into partitions that a transaction was committed or aborted.

Used between brokers, and by tools that abort a hanging transaction. 2: the version of the transaction protocol.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, int64, message, struct


@struct
class WriteTxnMarkersRequestTopic:
    name: str = field("0+")
    partition_indexes: list[int32] = field("0+")


@struct
class WriteTxnMarkersRequestMarker:
    producer_id: int64 = field("0+")
    producer_epoch: int16 = field("0+")
    transaction_result: bool = field("0+")
    topics: list[WriteTxnMarkersRequestTopic] = field("0+")
    coordinator_epoch: int32 = field("0+")
    transaction_version: int8 = field("2+", ignorable=True)


@message("1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WriteTxnMarkersRequestMarker] = field("0+")


@struct
class WriteTxnMarkersResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")


@struct
class WriteTxnMarkersResponseTopic:
    name: str = field("0+")
    partitions: list[WriteTxnMarkersResponsePartition] = field("0+")


@struct
class WriteTxnMarkersResponseMarker:
    producer_id: int64 = field("0+")
    topics: list[WriteTxnMarkersResponseTopic] = field("0+")


@message("1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WriteTxnMarkersResponseMarker] = field("0+")


API = Api(27, "WriteTxnMarkers", WriteTxnMarkersRequest, WriteTxnMarkersResponse)
