"""EndTxn (key 26): commit or abort. 5: the answer carries the id and epoch for the next transaction."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message


@message("0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = field("0+")
    producer_id: int64 = field("0+")
    producer_epoch: int16 = field("0+")
    committed: bool = field("0+")


@message("0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    producer_id: int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: int16 = field("5+", default=-1, ignorable=True)


API = Api(26, "EndTxn", EndTxnRequest, EndTxnResponse)
