"""DescribeConfigs (1-4): every setting with its value, where it comes from and what it would fall back to."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.broker_settings import BROKER_SETTINGS
from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import topic_name_problem
from penstock.base.settings import Dynamic, Resolved, Setting, Source, Synonym
from penstock.base.topic_settings import TOPIC_SETTINGS
from penstock.broker.broker import Broker
from penstock.broker.handlers.config_resources import BROKER, TOPIC, broker_entity, check_right, unsupported_type
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation
from penstock.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResource,
    DescribeConfigsResponseSynonym,
)
from penstock.zookeeper.znodes import DEFAULT_ENTITY


def handle(broker: Broker, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(broker, resource, request, context) for resource in request.resources]
    )


def _describe(
    broker: Broker, resource: DescribeConfigsRequestResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponseResource:
    answer = DescribeConfigsResponseResource(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        check_right(broker, resource, Operation.DESCRIBE_CONFIGS, context)
        rows = _rows(broker, resource.resource_type, resource.resource_name)
    except ApiError as error:
        answer.error_code, answer.error_message = error.error, error.message
        return answer
    wanted = resource.configuration_keys
    answer.configs = [
        _config(row, resolved, request, is_topic=resource.resource_type == TOPIC)
        for row, resolved in rows
        if not wanted or row.name in wanted
    ]
    return answer


def _rows(broker: Broker, resource_type: int, name: str) -> Iterable[tuple[Setting, Resolved]]:
    if resource_type == TOPIC:
        if (problem := topic_name_problem(name)) is not None:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, problem)
        if name not in broker.view.topics:
            raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        topic = broker.topics.settings_of(name)
        return [(row, topic.explain(row.name)) for row in TOPIC_SETTINGS.values()]
    if resource_type != BROKER:
        raise unsupported_type(resource_type)
    if broker_entity(broker, name) == DEFAULT_ENTITY:
        source = Source.DYNAMIC_DEFAULT_BROKER
        return [_given_alone(key, value, source) for key, value in broker.settings.given(source).items()]
    return [(row, broker.settings.explain(row.name)) for row in BROKER_SETTINGS.values()]


def _given_alone(name: str, value: str, source: Source) -> tuple[Setting, Resolved]:
    """A value that all brokers are given, whatever else this one has."""
    row = BROKER_SETTINGS[name]
    shown = None if row.sensitive else value
    return row, Resolved(row, shown, source, (Synonym(name, shown, source),), read_only=False)


def _config(
    row: Setting, resolved: Resolved, request: DescribeConfigsRequest, *, is_topic: bool
) -> DescribeConfigsResponseConfig:
    synonyms = []
    if request.include_synonyms:
        synonyms = [
            DescribeConfigsResponseSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in resolved.synonyms
            if synonym.source is not Source.DEFAULT or not is_topic or row.broker_name is not None
        ]
    return DescribeConfigsResponseConfig(
        name=row.name,
        value=resolved.value,
        read_only=not is_topic and row.dynamic is Dynamic.READ_ONLY,
        config_source=resolved.source,
        is_sensitive=row.sensitive,
        synonyms=synonyms,
        config_type=row.kind,
        documentation=row.doc if request.include_documentation else None,
    )
