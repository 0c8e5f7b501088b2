"""PushTelemetry (key 72): a client's metrics, in OpenTelemetry's encoding."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message


@message("0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: UUID = field("0+")
    subscription_id: int32 = field("0+")
    terminating: bool = field("0+")
    compression_type: int8 = field("0+")
    metrics: bytes = field("0+")


@message("0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")


API = Api(72, "PushTelemetry", PushTelemetryRequest, PushTelemetryResponse)
