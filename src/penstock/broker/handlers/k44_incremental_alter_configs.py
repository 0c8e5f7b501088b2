"""IncrementalAlterConfigs (0-1): set, delete, append to and subtract from single settings."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.setting_changes import Change, Operation
from penstock.broker.broker import Broker
from penstock.broker.handlers.config_resources import BROKER, TOPIC, broker_entity, unsupported_type
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)

KEY = 44


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, _context: RequestContext
) -> IncrementalAlterConfigsResponse:
    responses = []
    for resource in request.resources:
        answer = IncrementalAlterConfigsResponseResource(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            await _alter(broker, resource, is_trial=request.validate_only)
        except ApiError as error:
            answer.error_code, answer.error_message = error.error, error.message
        responses.append(answer)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(broker: Broker, resource: IncrementalAlterConfigsRequestResource, *, is_trial: bool) -> None:
    changes = []
    for config in resource.configs:
        try:
            operation = Operation(config.config_operation)
        except ValueError:
            raise ApiError(Error.INVALID_REQUEST, f"{config.name}: no operation {config.config_operation}") from None
        changes.append(Change(config.name, operation, config.value))
    if resource.resource_type == TOPIC:
        await broker.topics.alter_settings(resource.resource_name, changes, is_trial=is_trial)
    elif resource.resource_type == BROKER:
        await broker.alter_settings(broker_entity(broker, resource.resource_name), changes, is_trial=is_trial)
    else:
        raise unsupported_type(resource.resource_type)
