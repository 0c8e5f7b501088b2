"""How many partitions a client may create and delete: counted by the controller, before it does so.

For each topic of a request the partitions that it creates or deletes are taken from the client's bucket. While that is
in debt, a topic is refused (THROTTLING_QUOTA_EXCEEDED) to clients that know this error; for older ones it is done, and
they wait afterwards. What did not come about in the end is given back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID
from penstock.broker.broker import Broker
from penstock.broker.requests import AsyncHandler, RequestContext

Refused = Callable[[Any, ApiError], Any]


@dataclass(frozen=True, slots=True)
class Mutations:
    """What a request that changes topics looks like: its fields that name them, and the rows of its answer."""

    strict_since: int
    topics: tuple[str, ...]
    rows: str
    partitions: Callable[[Broker, Any], int]


def limited(broker: Broker, mutations: Mutations, refused: Refused, serve: AsyncHandler) -> AsyncHandler:
    """Serve a request, at the controller, within what the client may."""

    async def serve_limited(request: Any, context: RequestContext) -> Any:
        quotas = broker.quotas
        bucket = None if context.is_broker_itself else quotas.mutations(context.principal, context.client_id)
        if bucket is None or getattr(request, "validate_only", False):
            return await serve(request, context)
        is_strict = context.version >= mutations.strict_since
        taken: dict[object, int] = {}
        now: dict[str, list[Any]] = {}
        later: dict[str, list[Any]] = {}
        throttle_ms = 0
        for field in mutations.topics:
            now[field], later[field] = [], []
            for topic in getattr(request, field):
                if is_strict and (wait_ms := bucket.throttle_ms(quotas.now_ms())):
                    throttle_ms = max(throttle_ms, wait_ms)
                    later[field].append(topic)
                    continue
                taken[_key(topic)] = mutations.partitions(broker, topic)
                bucket.take(taken[_key(topic)], quotas.now_ms())
                now[field].append(topic)
        answer = await serve(replace(request, **now), context)
        rows = getattr(answer, mutations.rows)
        for row in rows:
            if row.error_code:
                bucket.take(-taken.get(_key(row), 0), quotas.now_ms())
        if any(later.values()):
            late = refused(replace(request, **later), ApiError(Error.THROTTLING_QUOTA_EXCEEDED))
            rows.extend(getattr(late, mutations.rows))
        answer.throttle_time_ms = throttle_ms if is_strict else bucket.throttle_ms(quotas.now_ms())
        return answer

    return serve_limited


def held(broker: Broker, serve: AsyncHandler) -> AsyncHandler:
    """At the broker that the client asked: keep to the wait that the controller has told."""

    async def serve_held(request: Any, context: RequestContext) -> Any:
        answer = await serve(request, context)
        if answer.throttle_time_ms:
            broker.quotas.hold_for_mutations(context.connection, answer.throttle_time_ms)
        return answer

    return serve_held


def created_partitions(broker: Broker, topic: Any) -> int:
    """Of a topic that is to be created."""
    if topic.assignments:
        return len(topic.assignments)
    return int(topic.num_partitions) if topic.num_partitions > 0 else broker.settings.integer("num.partitions")


def deleted_partitions(broker: Broker, topic: Any) -> int:
    """Of a topic that is to be deleted, by its name or its row in the request."""
    if isinstance(topic, str):
        found = broker.view.topics.get(topic)
    elif topic.name is not None:
        found = broker.view.topics.get(topic.name)
    else:
        found = broker.view.topic_by_id(topic.topic_id)
    return 0 if found is None else len(found.partitions)


def added_partitions(broker: Broker, topic: Any) -> int:
    """Of a topic that is to grow."""
    found = broker.view.topics.get(topic.name)
    return 0 if found is None else max(0, topic.count - len(found.partitions))


def _key(topic: Any) -> object:
    if isinstance(topic, str):
        return topic
    topic_id = getattr(topic, "topic_id", NO_ID)
    return topic.name or topic_id
