"""DeleteTopics (1-6): by name, or from version 6 on also by id."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)

BY_ID_SINCE = 6
ERROR_FOR_DISABLED_SINCE = 3


async def handle(broker: Broker, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    asked = request.topics
    if context.version < BY_ID_SINCE:
        asked = [DeleteTopicsRequestTopic(name=name) for name in request.topic_names]
    refused: list[DeleteTopicsResponseTopic] = []
    wanted: dict[str, DeleteTopicsResponseTopic] = {}
    for topic in asked:
        answer = DeleteTopicsResponseTopic(name=topic.name, topic_id=topic.topic_id)
        try:
            name = _name_of(broker, topic, context.version)
        except ApiError as error:
            refused.append(_refuse(answer, error))
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
    return DeleteTopicsResponse(responses=[*refused, *wanted.values()])


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
