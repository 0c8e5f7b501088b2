"""CreatePartitions (0-3): let topics grow."""

from __future__ import annotations

from collections import Counter

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.broker.topics import INTERNAL_TOPICS
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
)
from penstock.zookeeper.topic_znodes import Topic


async def handle(broker: Broker, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results, changed = [], []
    for topic in {topic.name: topic for topic in request.topics}.values():
        answer = CreatePartitionsResponseTopic(name=topic.name)
        try:
            broker.rights.check(context, Operation.ALTER, ResourceType.TOPIC, topic.name)
            grown = await _grow(broker, topic, is_repeated=counts[topic.name] > 1, is_trial=request.validate_only)
        except ApiError as error:
            answer.error_code, answer.error_message = error.error, error.message
        else:
            changed.append(grown)
            if not request.validate_only:
                broker.audit.record(
                    "partitions_created", topic=topic.name, partitions=topic.count, principal=context.principal
                )
        results.append(answer)
    if not request.validate_only:
        await broker.spreading.to_replicas(changed, request.timeout_ms / 1000)
    return CreatePartitionsResponse(results=results)


def refused(request: CreatePartitionsRequest, error: ApiError) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    rows = [
        CreatePartitionsResponseTopic(name=name, error_code=error.error, error_message=error.message) for name in names
    ]
    return CreatePartitionsResponse(results=rows)


async def _grow(broker: Broker, topic: CreatePartitionsRequestTopic, *, is_repeated: bool, is_trial: bool) -> Topic:
    if is_repeated:
        raise ApiError(Error.INVALID_REQUEST, f"the request names topic {topic.name!r} more than once")
    if topic.name in INTERNAL_TOPICS:  # with other partitions, every group and transactional id would be elsewhere
        raise ApiError(Error.INVALID_PARTITIONS, f"the number of partitions of {topic.name} cannot be changed")
    assignments = None
    if topic.assignments is not None:
        assignments = [assignment.broker_ids for assignment in topic.assignments]
    return await broker.topics.grow(topic.name, topic.count, assignments, is_trial=is_trial)
