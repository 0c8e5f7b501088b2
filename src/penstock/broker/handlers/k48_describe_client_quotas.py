"""DescribeClientQuotas (0-1): the limits of those that a filter names."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.security.quota_changes import checked_filter
from penstock.security.quotas import Entity, quotas_in
from penstock.wire.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntity,
    DescribeClientQuotasResponseEntry,
    DescribeClientQuotasResponseValue,
)


def handle(
    broker: Broker, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    try:
        broker.rights.check(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        wanted = checked_filter(
            ((part.entity_type, part.match_type, part.match) for part in request.components), is_strict=request.strict
        )
    except ApiError as error:
        return DescribeClientQuotasResponse(error_code=error.error, error_message=error.message, entries=None)
    configs = {name: stored.values for name, stored in sorted(broker.view.configs.items())}
    entries = [_entry(entity, values) for entity, values in quotas_in(configs) if entity in wanted]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _entry(entity: Entity, values: dict[str, float]) -> DescribeClientQuotasResponseEntry:
    return DescribeClientQuotasResponseEntry(
        entity=[
            DescribeClientQuotasResponseEntity(entity_type=kind, entity_name=name)
            for kind, name in entity.parts().items()
        ],
        values=[DescribeClientQuotasResponseValue(key=key, value=value) for key, value in values.items()],
    )
