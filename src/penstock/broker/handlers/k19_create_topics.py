"""CreateTopics (2-7): the topic can be used when the answer arrives."""

from __future__ import annotations

from collections import Counter

from penstock.base.errors import ApiError, Error
from penstock.base.settings import Source
from penstock.base.topic_settings import TOPIC_SETTINGS, TopicSettings
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.broker.topics import INTERNAL_TOPICS
from penstock.controller.topics import NewTopic
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
)
from penstock.zookeeper.topic_znodes import Topic

DETAILS_SINCE = 5


async def handle(broker: Broker, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    asked: dict[str, NewTopic] = {}
    answers: dict[str, CreateTopicsResponseTopic] = {}
    may_all = broker.rights.allows(context, Operation.CREATE, ResourceType.CLUSTER, is_told=False)
    for topic in request.topics:
        try:
            if not may_all:
                broker.rights.check(context, Operation.CREATE, ResourceType.TOPIC, topic.name)
            asked[topic.name] = _new_topic(topic, is_repeated=counts[topic.name] > 1)
        except ApiError as error:
            asked.pop(topic.name, None)
            answers[topic.name] = _refusal(topic.name, error)
    outcomes = await broker.topics.create(list(asked.values()), is_trial=request.validate_only)
    for new, outcome in zip(asked.values(), outcomes, strict=True):
        if isinstance(outcome, ApiError):
            answers[new.name] = _refusal(new.name, outcome)
        else:
            answers[new.name] = _created(broker, new, outcome, context)
    if not request.validate_only:
        created = [outcome for outcome in outcomes if not isinstance(outcome, ApiError)]
        for topic_made in created:
            broker.audit.record(
                "topic_created",
                topic=topic_made.name,
                partitions=len(topic_made.partitions),
                principal=context.principal,
            )
        await broker.spreading.to_replicas(created, request.timeout_ms / 1000)
    return CreateTopicsResponse(topics=[answers[name] for name in counts])


def refused(request: CreateTopicsRequest, error: ApiError) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(topics=[_refusal(name, error) for name in names])


def _new_topic(topic: CreateTopicsRequestTopic, *, is_repeated: bool) -> NewTopic:
    if is_repeated:
        raise ApiError(Error.INVALID_REQUEST, f"the request names topic {topic.name!r} more than once")
    configs = {}
    for config in topic.configs:
        if config.value is None:
            raise ApiError(Error.INVALID_CONFIG, f"{config.name} needs a value")
        configs[config.name] = config.value
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        configs,
        internal=topic.name in INTERNAL_TOPICS,
    )


def _refusal(name: str, error: ApiError) -> CreateTopicsResponseTopic:
    return CreateTopicsResponseTopic(name=name, error_code=error.error, error_message=error.message, configs=[])


def _created(broker: Broker, new: NewTopic, topic: Topic, context: RequestContext) -> CreateTopicsResponseTopic:
    answer = CreateTopicsResponseTopic(name=topic.name, topic_id=topic.topic_id, error_message=None)
    if context.version < DETAILS_SINCE:
        return answer
    if not broker.rights.allows(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, is_told=False):
        answer.topic_config_error_code = Error.TOPIC_AUTHORIZATION_FAILED
    else:
        answer.num_partitions = len(topic.partitions)
        answer.replication_factor = len(topic.partitions[0].replicas)
        answer.configs = _configs(TopicSettings(broker.settings, new.configs))
    return answer


def _configs(settings: TopicSettings) -> list[CreateTopicsResponseConfig]:
    rows = []
    for name, row in TOPIC_SETTINGS.items():
        resolved = settings.explain(name)
        rows.append(
            CreateTopicsResponseConfig(
                name=name,
                value=None if row.sensitive else resolved.value,
                config_source=Source(resolved.source),
                is_sensitive=row.sensitive,
            )
        )
    return rows
