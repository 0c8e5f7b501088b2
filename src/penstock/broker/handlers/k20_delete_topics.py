"""DeleteTopics (1-6): by name, or from version 6 on also by id."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)

ERROR_FOR_DISABLED_SINCE = 3


async def handle(broker: Broker, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    unknown: list[DeleteTopicsResponseTopic] = []
    wanted: dict[str, DeleteTopicsResponseTopic] = {}
    may_delete_all = broker.rights.allows(context, Operation.DELETE, ResourceType.CLUSTER, is_told=False)
    for topic in _asked(request):
        answer = DeleteTopicsResponseTopic(name=topic.name, topic_id=topic.topic_id)
        name = ""
        try:
            name = _name_of(broker, topic, context.version)
            if not may_delete_all:
                broker.rights.check(context, Operation.DELETE, ResourceType.TOPIC, name)
        except ApiError as error:
            may_be_named = topic.name is None and error.error is Error.TOPIC_AUTHORIZATION_FAILED
            if may_be_named and broker.rights.allows(
                context, Operation.DESCRIBE, ResourceType.TOPIC, name, is_told=False
            ):
                answer.name = name
            unknown.append(_refuse(answer, error))
            continue
        if name in wanted:
            answer.name = name
            _refuse(answer, ApiError(Error.INVALID_REQUEST, f"the request names topic {name!r} more than once"))
        wanted[name] = answer
    deletable = {name: answer for name, answer in wanted.items() if not answer.error_code}
    outcomes = await broker.topics.delete(list(deletable))
    for (name, answer), outcome in zip(deletable.items(), outcomes, strict=True):
        if isinstance(outcome, ApiError):
            _refuse(answer, outcome)
        else:
            answer.name = name
            answer.topic_id = outcome.topic_id
            broker.audit.record("topic_deleted", topic=name, topic_id=outcome.topic_id, principal=context.principal)
    deleted = [outcome for outcome in outcomes if not isinstance(outcome, ApiError)]
    await broker.spreading.to_replicas(deleted, request.timeout_ms / 1000)
    return DeleteTopicsResponse(responses=[*unknown, *wanted.values()])


def refused(request: DeleteTopicsRequest, error: ApiError) -> DeleteTopicsResponse:
    answers = [DeleteTopicsResponseTopic(name=topic.name, topic_id=topic.topic_id) for topic in _asked(request)]
    return DeleteTopicsResponse(responses=[_refuse(answer, error) for answer in answers])


def _asked(request: DeleteTopicsRequest) -> list[DeleteTopicsRequestTopic]:
    """Those of either field: each version has one of them."""
    return [*request.topics, *(DeleteTopicsRequestTopic(name=name) for name in request.topic_names)]


def _name_of(broker: Broker, topic: DeleteTopicsRequestTopic, version: int) -> str:
    if not broker.settings.flag("delete.topic.enable"):
        disabled = Error.TOPIC_DELETION_DISABLED if version >= ERROR_FOR_DISABLED_SINCE else Error.INVALID_REQUEST
        raise ApiError(disabled)
    if (topic.name is None) == (topic.topic_id == NO_ID):
        raise ApiError(Error.INVALID_REQUEST, "name a topic either by its name or by its id")
    if topic.name is not None:
        return topic.name
    found = broker.view.topic_by_id(topic.topic_id)
    if found is None:
        raise ApiError(Error.UNKNOWN_TOPIC_ID)
    return found.name


def _refuse(answer: DeleteTopicsResponseTopic, error: ApiError) -> DeleteTopicsResponseTopic:
    answer.error_code = error.error
    answer.error_message = error.message
    return answer
