"""Envelope (key 20007, Penstock's own): a request that a broker hands on to the controller, and whose request it is.

Between brokers only: whoever may send this may speak for everybody. Without a principal, the broker asks for itself.
The request and its answer are the messages alone, without headers, in the version that is named.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message


@message("0", flexible="0+")
class EnvelopeRequest:
    principal: str | None = field("0+", nullable="0+")
    host: str = field("0+")
    client_id: str = field("0+")
    api_key: int16 = field("0+")
    api_version: int16 = field("0+")
    request: bytes = field("0+")


@message("0", flexible="0+")
class EnvelopeResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    response: bytes | None = field("0+", nullable="0+")


API = Api(20007, "Envelope", EnvelopeRequest, EnvelopeResponse)
