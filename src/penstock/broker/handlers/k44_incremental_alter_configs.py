"""IncrementalAlterConfigs (0-1): set, delete, append to and subtract from single settings."""

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
from penstock.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    responses, altered = [], []
    repeats = repeated(request.resources)
    for resource in request.resources:
        try:
            check_right(broker, resource, rights.ALTER_CONFIGS, context)
            check_resource(resource, repeats)
            await _alter(broker, resource, is_trial=request.validate_only)
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
    return IncrementalAlterConfigsResponse(responses=responses)


def refused(request: IncrementalAlterConfigsRequest, error: ApiError) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=[refusal(resource, error) for resource in request.resources])


def refusal(
    resource: IncrementalAlterConfigsRequestResource, error: ApiError
) -> IncrementalAlterConfigsResponseResource:
    row = _row(resource)
    row.error_code, row.error_message = error.error, error.message
    return row


def _row(resource: IncrementalAlterConfigsRequestResource) -> IncrementalAlterConfigsResponseResource:
    return IncrementalAlterConfigsResponseResource(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )


async def _alter(broker: Broker, resource: IncrementalAlterConfigsRequestResource, *, is_trial: bool) -> None:
    changes = changes_of(broker, resource)
    if resource.resource_type == TOPIC:
        await broker.topics.alter_settings(resource.resource_name, changes, is_trial=is_trial)
    else:
        await broker.alter_settings(altered_entity(broker, resource.resource_name), changes, is_trial=is_trial)


def changes_of(_broker: Broker, resource: IncrementalAlterConfigsRequestResource) -> list[Change]:
    check_names(config.name for config in resource.configs)
    return [_change(config) for config in resource.configs]


def _change(config: IncrementalAlterConfigsRequestConfig) -> Change:
    try:
        operation = Operation(config.config_operation)
    except ValueError:
        raise ApiError(Error.INVALID_REQUEST, f"{config.name}: no operation {config.config_operation}") from None
    if config.value is None and operation is not Operation.DELETE:
        raise ApiError(Error.INVALID_REQUEST, f"{config.name} needs a value (to go back to the default, delete it)")
    return Change(config.name, operation, config.value)
