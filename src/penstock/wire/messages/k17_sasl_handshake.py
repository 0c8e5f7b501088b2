"""SaslHandshake (key 17): choose a SASL mechanism. 0: bare tokens follow; 1: SaslAuthenticate follows."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, message


@message("0-1")
class SaslHandshakeRequest:
    mechanism: str = field("0+")


@message("0-1")
class SaslHandshakeResponse:
    error_code: int16 = field("0+")
    mechanisms: list[str] = field("0+")


API = Api(17, "SaslHandshake", SaslHandshakeRequest, SaslHandshakeResponse)
