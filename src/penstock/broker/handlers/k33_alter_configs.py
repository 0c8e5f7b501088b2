"""AlterConfigs (0-2): the older way, which replaces all settings of a resource by those given."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.setting_changes import Change, Operation
from penstock.broker.broker import Broker
from penstock.broker.handlers.config_resources import (
    TOPIC,
    altered_entity,
    check_names,
    check_resource,
    check_right,
    repeated,
    spread_settings,
)
from penstock.broker.requests import RequestContext
from penstock.security import api_rights as rights
from penstock.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
)
from penstock.zookeeper.znodes import DEFAULT_ENTITY


async def handle(broker: Broker, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    responses, altered = [], []
    repeats = repeated(request.resources)
    for resource in request.resources:
        try:
            check_right(broker, resource, rights.ALTER_CONFIGS, context)
            check_resource(resource, repeats)
            await _replace(broker, resource, is_trial=request.validate_only)
        except ApiError as error:
            responses.append(refusal(resource, error))
        else:
            responses.append(_row(resource))
            altered.append(resource)
            if not request.validate_only:
                broker.audit.record(
                    "settings_changed",
                    principal=context.principal,
                    resource_type=resource.resource_type,
                    resource=resource.resource_name,
                    changes={config.name: config.value for config in resource.configs},
                )
    if not request.validate_only:
        await spread_settings(broker, altered)
    return AlterConfigsResponse(responses=responses)


def refused(request: AlterConfigsRequest, error: ApiError) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[refusal(resource, error) for resource in request.resources])


def refusal(resource: AlterConfigsRequestResource, error: ApiError) -> AlterConfigsResponseResource:
    row = _row(resource)
    row.error_code, row.error_message = error.error, error.message
    return row


def _row(resource: AlterConfigsRequestResource) -> AlterConfigsResponseResource:
    return AlterConfigsResponseResource(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )


async def _replace(broker: Broker, resource: AlterConfigsRequestResource, *, is_trial: bool) -> None:
    if resource.resource_type == TOPIC:
        await broker.topics.replace_settings(resource.resource_name, _values(resource), is_trial=is_trial)
    else:
        entity = altered_entity(broker, resource.resource_name)
        await broker.alter_settings(entity, changes_of(broker, resource), is_trial=is_trial)


def changes_of(broker: Broker, resource: AlterConfigsRequestResource) -> list[Change]:
    """What changes in the settings of a broker, or of all."""
    values = _values(resource)
    given = broker.dynamic_values(resource.resource_name or DEFAULT_ENTITY)
    removed = [Change(name, Operation.DELETE) for name in given if name not in values]
    return removed + [Change(name, Operation.SET, value) for name, value in values.items()]


def _values(resource: AlterConfigsRequestResource) -> dict[str, str]:
    check_names(config.name for config in resource.configs)
    values = {}
    for config in resource.configs:
        if config.value is None:
            raise ApiError(
                Error.INVALID_REQUEST, f"{config.name} needs a value; leave it out to go back to the default"
            )
        values[config.name] = config.value
    return values
