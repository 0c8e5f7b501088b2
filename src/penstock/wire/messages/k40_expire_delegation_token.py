"""ExpireDelegationToken (key 40): an earlier expiry for a token, or its end."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message


@message("1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = field("0+")
    expiry_time_period_ms: int64 = field("0+")


@message("1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int16 = field("0+")
    expiry_timestamp_ms: int64 = field("0+")
    throttle_time_ms: int32 = field("0+")


API = Api(40, "ExpireDelegationToken", ExpireDelegationTokenRequest, ExpireDelegationTokenResponse)
