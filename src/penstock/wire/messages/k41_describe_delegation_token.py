"""DescribeDelegationToken (key 41): the tokens of some owners. 3: who asked for each."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class DescribeDelegationTokenRequestOwner:
    principal_type: str = field("0+")
    principal_name: str = field("0+")


@message("1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenRequestOwner] | None = field("0+", nullable="0+")


@struct
class DescribeDelegationTokenResponseRenewer:
    principal_type: str = field("0+")
    principal_name: str = field("0+")


@struct
class DescribeDelegationTokenResponseToken:
    principal_type: str = field("0+")
    principal_name: str = field("0+")
    token_requester_principal_type: str = field("3+")
    token_requester_principal_name: str = field("3+")
    issue_timestamp: int64 = field("0+")
    expiry_timestamp: int64 = field("0+")
    max_timestamp: int64 = field("0+")
    token_id: str = field("0+")
    hmac: bytes = field("0+")
    renewers: list[DescribeDelegationTokenResponseRenewer] = field("0+")


@message("1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: int16 = field("0+")
    tokens: list[DescribeDelegationTokenResponseToken] = field("0+")
    throttle_time_ms: int32 = field("0+")


API = Api(41, "DescribeDelegationToken", DescribeDelegationTokenRequest, DescribeDelegationTokenResponse)
