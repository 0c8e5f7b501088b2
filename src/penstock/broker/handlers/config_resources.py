"""What the config APIs have in common: which resources have settings, how they are named, and who judges them.

Topics are type 2 and brokers type 4; a broker is named by its id, and the empty name stands for all brokers.

The controller writes all settings. Those of a broker must go together with what is in its own file, which nobody else
knows: so the broker that is named judges them before they are handed on. Clients send them to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Protocol

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import topic_name_problem
from penstock.base.setting_changes import Change
from penstock.broker.broker import Broker
from penstock.broker.requests import AsyncHandler, RequestContext
from penstock.security.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.zookeeper.znodes import DEFAULT_ENTITY

TOPIC = 2
BROKER = 4
GROUP = 32
_KINDS = {TOPIC: ResourceType.TOPIC, BROKER: ResourceType.CLUSTER, GROUP: ResourceType.GROUP}


class Resource(Protocol):
    """What a request to alter settings names."""

    resource_type: int
    resource_name: str


def check_right(broker: Broker, resource: Resource, operation: Operation, context: RequestContext) -> None:
    """ApiError unless the settings of a resource may be described, or altered. Those of brokers are the cluster's."""
    kind = _KINDS.get(resource.resource_type, ResourceType.CLUSTER)
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
    broker.rights.check(context, operation, kind, name)


#: A resource's row of an answer, with an error.
Refusal = Callable[[Any, ApiError], Any]


def repeated(resources: Sequence[Resource]) -> set[tuple[int, str]]:
    """The resources that a request names more than once."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    return {resource for resource, count in counts.items() if count > 1}


def check_resource(resource: Resource, repeats: set[tuple[int, str]]) -> None:
    """ApiError if a request to alter settings names what cannot be altered, or names it twice."""
    if (resource.resource_type, resource.resource_name) in repeats:
        raise ApiError(Error.INVALID_REQUEST, "the request names this resource more than once")
    if resource.resource_type not in (TOPIC, BROKER):
        raise unsupported_type(resource.resource_type)
    if resource.resource_type == TOPIC:
        if not resource.resource_name:
            raise ApiError(Error.INVALID_REQUEST, "there are no settings for all topics together: set the broker's")
        if (problem := topic_name_problem(resource.resource_name)) is not None:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, problem)


def check_names(names: Iterable[str]) -> None:
    """ApiError if a request sets one of a resource's settings twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ApiError(Error.INVALID_REQUEST, f"{name} is changed twice in one request")


def broker_entity(broker: Broker, name: str) -> str:
    """The broker, or all of them, that a config request names; ApiError if it is not this one's to answer."""
    if not name:
        return DEFAULT_ENTITY
    if not name.isdecimal():
        raise ApiError(Error.INVALID_REQUEST, f"a broker is named by its id, not {name!r}")
    if int(name) != broker.node_id:
        raise ApiError(Error.INVALID_REQUEST, f"this is broker {broker.node_id}; ask broker {name} itself")
    return str(int(name))


def altered_entity(broker: Broker, name: str) -> str:
    """The broker, or all of them, whose settings a request alters; ApiError if the cluster has no such broker."""
    if not name or not name.isdecimal() or int(name) == broker.node_id:
        return broker_entity(broker, name)
    view = broker.view
    if int(name) not in (*view.brokers, *view.admitted.epochs, *view.admitted.away):
        raise ApiError(Error.INVALID_REQUEST, f"there is no broker {name}")
    return str(int(name))


async def spread_settings(broker: Broker, resources: Iterable[Resource]) -> None:
    """Wait until the settings of these are known where they matter."""
    matter: set[int] = set()
    for resource in resources:
        topic = broker.view.topics.get(resource.resource_name) if resource.resource_type == TOPIC else None
        if topic is not None:
            matter.update(chain.from_iterable(state.replicas for state in topic.partitions))
        elif resource.resource_type == BROKER:
            matter.update([int(resource.resource_name)] if resource.resource_name else broker.view.brokers)
    await broker.spreading.to_brokers(matter)


def judged_first(
    broker: Broker, changes_of: Callable[[Broker, Any], Sequence[Change]], refusal: Refusal, serve: AsyncHandler
) -> AsyncHandler:
    """Serve a request to alter settings, in which this broker's own are judged before the rest is handed on."""

    def problem(resource: Resource, context: RequestContext) -> ApiError | None:
        if not broker.rights.is_on:
            return unfit(resource)
        try:
            check_right(broker, resource, Operation.ALTER_CONFIGS, context)
        except ApiError as error:
            return error
        return unfit(resource)

    def unfit(resource: Resource) -> ApiError | None:
        if resource.resource_type == BROKER and resource.resource_name == str(broker.node_id):
            try:
                broker.altered_values(resource.resource_name, changes_of(broker, resource))
            except ApiError as error:
                return error
        return None

    async def serve_judged(request: Any, context: RequestContext) -> Any:
        asked = request.resources
        problems = [problem(resource, context) for resource in asked]
        request.resources = [resource for resource, wrong in zip(asked, problems, strict=True) if wrong is None]
        answer = await serve(request, context)
        rows = iter(answer.responses)
        answer.responses = [
            next(rows) if wrong is None else refusal(resource, wrong)
            for resource, wrong in zip(asked, problems, strict=True)
        ]
        return answer

    return serve_judged


def unsupported_type(resource_type: int) -> ApiError:
    return ApiError(Error.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")
