"""What the config APIs have in common: which resources have settings, and how they are named.

Topics are type 2 and brokers type 4; a broker is named by its id, and the empty name stands for all brokers.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.zookeeper.znodes import DEFAULT_ENTITY

TOPIC = 2
BROKER = 4


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
