"""UnregisterBroker (key 64): forget a broker that will not come back."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message


@message("0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int32 = field("0+")


@message("0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")


API = Api(64, "UnregisterBroker", UnregisterBrokerRequest, UnregisterBrokerResponse)
