"""AlterConfigs (key 33): replace all settings of a resource. Superseded by IncrementalAlterConfigs."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class AlterConfigsRequestConfig:
    name: str = field("0+")
    value: str | None = field("0+", nullable="0+")


@struct
class AlterConfigsRequestResource:
    resource_type: int8 = field("0+")
    resource_name: str = field("0+")
    configs: list[AlterConfigsRequestConfig] = field("0+")


@message("0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsRequestResource] = field("0+")
    validate_only: bool = field("0+")


@struct
class AlterConfigsResponseResource:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    resource_type: int8 = field("0+")
    resource_name: str = field("0+")


@message("0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int32 = field("0+")
    responses: list[AlterConfigsResponseResource] = field("0+")


API = Api(33, "AlterConfigs", AlterConfigsRequest, AlterConfigsResponse)
