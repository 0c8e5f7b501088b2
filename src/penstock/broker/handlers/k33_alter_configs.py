"""AlterConfigs (0-2): the older way, which replaces all settings of a resource by those given."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.setting_changes import Change, Operation
from penstock.base.settings import Source
from penstock.broker.broker import Broker
from penstock.broker.handlers.config_resources import TOPIC, broker_entity, check_names, check_resource, repeated
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
)
from penstock.zookeeper.znodes import DEFAULT_ENTITY


async def handle(broker: Broker, request: AlterConfigsRequest, _context: RequestContext) -> AlterConfigsResponse:
    responses = []
    repeats = repeated(request.resources)
    for resource in request.resources:
        answer = AlterConfigsResponseResource(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            check_resource(resource, repeats)
            await _replace(broker, resource, is_trial=request.validate_only)
        except ApiError as error:
            answer.error_code, answer.error_message = error.error, error.message
        responses.append(answer)
    return AlterConfigsResponse(responses=responses)


async def _replace(broker: Broker, resource: AlterConfigsRequestResource, *, is_trial: bool) -> None:
    check_names(config.name for config in resource.configs)
    values = {}
    for config in resource.configs:
        if config.value is None:
            raise ApiError(
                Error.INVALID_REQUEST, f"{config.name} needs a value; leave it out to go back to the default"
            )
        values[config.name] = config.value
    if resource.resource_type == TOPIC:
        await broker.topics.replace_settings(resource.resource_name, values, is_trial=is_trial)
        return
    entity = broker_entity(broker, resource.resource_name)
    source = Source.DYNAMIC_DEFAULT_BROKER if entity == DEFAULT_ENTITY else Source.DYNAMIC_BROKER
    changes = [Change(name, Operation.DELETE) for name in broker.settings.given(source) if name not in values]
    changes += [Change(name, Operation.SET, value) for name, value in values.items()]
    await broker.alter_settings(entity, changes, is_trial=is_trial)
