"""InitProducerId (key 22): a producer's id and epoch, which make its retries recognizable.

- 3: a producer that was fenced may show its old id and epoch. 4: PRODUCER_FENCED. 5: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message


@message("0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = field("0+", nullable="0+")
    transaction_timeout_ms: int32 = field("0+")
    producer_id: int64 = field("3+", default=-1)
    producer_epoch: int16 = field("3+", default=-1)


@message("0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int32 = field("0+", ignorable=True)
    error_code: int16 = field("0+")
    producer_id: int64 = field("0+", default=-1)
    producer_epoch: int16 = field("0+")


API = Api(22, "InitProducerId", InitProducerIdRequest, InitProducerIdResponse)
