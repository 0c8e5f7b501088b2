"""AddOffsetsToTxn (key 25): a transaction is about to commit the offsets of this group."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message


@message("0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = field("0+")
    producer_id: int64 = field("0+")
    producer_epoch: int16 = field("0+")
    group_id: str = field("0+")


@message("0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")


API = Api(25, "AddOffsetsToTxn", AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
