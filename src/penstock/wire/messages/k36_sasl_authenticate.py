"""SaslAuthenticate (key 36): one step of a SASL exchange. 1: how long the authentication holds."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int64, message


@message("0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = field("0+")


@message("0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    auth_bytes: bytes = field("0+")
    session_lifetime_ms: int64 = field("1+", ignorable=True)


API = Api(36, "SaslAuthenticate", SaslAuthenticateRequest, SaslAuthenticateResponse)
