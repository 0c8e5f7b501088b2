"""What the handlers of groups have in common: who asks, in the words of the groups, and whether it may."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.groups.table import Caller


def caller_of(context: RequestContext) -> Caller:
    """The host has a slash in front, as Java writes addresses: tools expect to see it so."""
    return Caller(context.version, context.client_id, f"/{context.connection.peer.host}")


def check_served(broker: Broker) -> None:
    """ApiError if this broker does not serve the new group protocol."""
    if "consumer" not in broker.settings.list("group.coordinator.rebalance.protocols"):
        raise ApiError(Error.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols does not name this protocol")
