"""GetTelemetrySubscriptions (key 71): which metrics a client is asked to push."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message


@message("0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: UUID = field("0+")


@message("0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    client_instance_id: UUID = field("0+")
    subscription_id: int32 = field("0+")
    accepted_compression_types: list[int8] = field("0+")
    push_interval_ms: int32 = field("0+")
    telemetry_max_bytes: int32 = field("0+")
    delta_temporality: bool = field("0+")
    requested_metrics: list[str] = field("0+")


API = Api(71, "GetTelemetrySubscriptions", GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse)
