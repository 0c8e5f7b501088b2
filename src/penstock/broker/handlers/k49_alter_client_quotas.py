"""AlterClientQuotas (0-1): set limits and take them away; every broker keeps to them when the answer arrives."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.controller.configs import set_configs
from penstock.controller.plan import Plan
from penstock.security.quota_changes import Change, altered, checked_changes, checked_entity
from penstock.security.quotas import Entity, config_name
from penstock.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntity,
    AlterClientQuotasResponseEntry,
)


async def handle(
    broker: Broker, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    wanted: dict[Entity, dict[str, str | None]] = {}
    rows = []
    for entry in request.entries:
        row = _row(entry)
        try:
            entity = checked_entity([(part.entity_type, part.entity_name) for part in entry.entity])
            changes = [Change(each.key, None if each.remove else each.value) for each in entry.ops]
            checked = checked_changes(entity, changes)
            if entity in wanted:
                raise ApiError(Error.INVALID_REQUEST, "the request names this entity more than once")
            wanted[entity] = checked
        except ApiError as error:
            row.error_code, row.error_message = error.error, error.message
        rows.append(row)
    if wanted and not request.validate_only:
        await broker.role.decide(lambda _state: _plans(broker, wanted))
        for entity, values in wanted.items():
            broker.audit.record(
                "quotas_altered", principal=context.principal, host=context.host, entity=entity.parts(), values=values
            )
        await broker.spreading.to_all()
    return AlterClientQuotasResponse(entries=rows)


def refused(request: AlterClientQuotasRequest, error: ApiError) -> AlterClientQuotasResponse:
    rows = [_row(entry) for entry in request.entries]
    for row in rows:
        row.error_code, row.error_message = error.error, error.message
    return AlterClientQuotasResponse(entries=rows)


def _plans(broker: Broker, wanted: dict[Entity, dict[str, str | None]]) -> list[Plan]:
    plans = []
    for entity, changes in wanted.items():
        config_type, name = config_name(entity)
        before = broker.view.config_values(config_type, name)
        after = altered(before, changes)
        if after != before:
            plans.append(set_configs(config_type, name, after, broker.view.config_version(config_type, name)))
    return plans


def _row(entry: AlterClientQuotasRequestEntry) -> AlterClientQuotasResponseEntry:
    return AlterClientQuotasResponseEntry(
        error_message=None,
        entity=[
            AlterClientQuotasResponseEntity(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
    )
