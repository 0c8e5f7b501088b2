"""AllocateProducerIds (key 67): a broker takes a block of producer ids from the controller. Between brokers only."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message


@message("0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: int32 = field("0+")
    broker_epoch: int64 = field("0+", default=-1)


@message("0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    producer_id_start: int64 = field("0+")
    producer_id_len: int32 = field("0+")


API = Api(67, "AllocateProducerIds", AllocateProducerIdsRequest, AllocateProducerIdsResponse)
