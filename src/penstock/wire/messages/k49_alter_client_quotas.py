"""AlterClientQuotas (key 49): set or remove quotas."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, float64, int16, int32, message, struct


@struct
class AlterClientQuotasRequestEntity:
    entity_type: str = field("0+")
    entity_name: str | None = field("0+", nullable="0+")


@struct
class AlterClientQuotasRequestOp:
    key: str = field("0+")
    value: float64 = field("0+")
    remove: bool = field("0+")


@struct
class AlterClientQuotasRequestEntry:
    entity: list[AlterClientQuotasRequestEntity] = field("0+")
    ops: list[AlterClientQuotasRequestOp] = field("0+")


@message("0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[AlterClientQuotasRequestEntry] = field("0+")
    validate_only: bool = field("0+")


@struct
class AlterClientQuotasResponseEntity:
    entity_type: str = field("0+")
    entity_name: str | None = field("0+", nullable="0+")


@struct
class AlterClientQuotasResponseEntry:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    entity: list[AlterClientQuotasResponseEntity] = field("0+")


@message("0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int32 = field("0+")
    entries: list[AlterClientQuotasResponseEntry] = field("0+")


API = Api(49, "AlterClientQuotas", AlterClientQuotasRequest, AlterClientQuotasResponse)
