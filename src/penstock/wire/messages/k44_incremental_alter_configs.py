"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single settings."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class IncrementalAlterConfigsRequestConfig:
    name: str = field("0+")
    config_operation: int8 = field("0+")
    value: str | None = field("0+", nullable="0+")


@struct
class IncrementalAlterConfigsRequestResource:
    resource_type: int8 = field("0+")
    resource_name: str = field("0+")
    configs: list[IncrementalAlterConfigsRequestConfig] = field("0+")


@message("0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsRequestResource] = field("0+")
    validate_only: bool = field("0+")


@struct
class IncrementalAlterConfigsResponseResource:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    resource_type: int8 = field("0+")
    resource_name: str = field("0+")


@message("0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int32 = field("0+")
    responses: list[IncrementalAlterConfigsResponseResource] = field("0+")


API = Api(44, "IncrementalAlterConfigs", IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
