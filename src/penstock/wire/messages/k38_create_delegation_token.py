"""CreateDelegationToken (key 38): a short-lived secret that stands for a user. 3: on behalf of another user."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class CreateDelegationTokenRequestRenewer:
    principal_type: str = field("0+")
    principal_name: str = field("0+")


@message("1-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = field("3+", nullable="3+")
    owner_principal_name: str | None = field("3+", nullable="3+")
    renewers: list[CreateDelegationTokenRequestRenewer] = field("0+")
    max_lifetime_ms: int64 = field("0+")


@message("1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int16 = field("0+")
    principal_type: str = field("0+")
    principal_name: str = field("0+")
    token_requester_principal_type: str = field("3+")
    token_requester_principal_name: str = field("3+")
    issue_timestamp_ms: int64 = field("0+")
    expiry_timestamp_ms: int64 = field("0+")
    max_timestamp_ms: int64 = field("0+")
    token_id: str = field("0+")
    hmac: bytes = field("0+")
    throttle_time_ms: int32 = field("0+")


API = Api(38, "CreateDelegationToken", CreateDelegationTokenRequest, CreateDelegationTokenResponse)
