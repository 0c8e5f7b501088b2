"""What the config APIs have in common: which resources have settings, and how they are named.

Topics are type 2 and brokers type 4; a broker is named by its id, and the empty name stands for all brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import topic_name_problem
from penstock.broker.broker import Broker
from penstock.zookeeper.znodes import DEFAULT_ENTITY

TOPIC = 2
BROKER = 4


class Resource(Protocol):
    """What a request to alter settings names."""

    resource_type: int
    resource_name: str


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


def unsupported_type(resource_type: int) -> ApiError:
    return ApiError(Error.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")
