"""DescribeClientQuotas (key 48): quotas of users, client ids and addresses that match a filter."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, float64, int8, int16, int32, message, struct


@struct
class DescribeClientQuotasRequestComponent:
    entity_type: str = field("0+")
    match_type: int8 = field("0+")
    match: str | None = field("0+", nullable="0+")


@message("0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[DescribeClientQuotasRequestComponent] = field("0+")
    strict: bool = field("0+")


@struct
class DescribeClientQuotasResponseEntity:
    entity_type: str = field("0+")
    entity_name: str | None = field("0+", nullable="0+")


@struct
class DescribeClientQuotasResponseValue:
    key: str = field("0+")
    value: float64 = field("0+")


@struct
class DescribeClientQuotasResponseEntry:
    entity: list[DescribeClientQuotasResponseEntity] = field("0+")
    values: list[DescribeClientQuotasResponseValue] = field("0+")


@message("0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    entries: list[DescribeClientQuotasResponseEntry] | None = field("0+", nullable="0+")


API = Api(48, "DescribeClientQuotas", DescribeClientQuotasRequest, DescribeClientQuotasResponse)
