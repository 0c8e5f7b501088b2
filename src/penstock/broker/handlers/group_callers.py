"""What the handlers of groups have in common: who asks, in the words of the groups."""

from __future__ import annotations

from penstock.broker.requests import RequestContext
from penstock.groups.table import Caller


def caller_of(context: RequestContext) -> Caller:
    """The host has a slash in front, as Java writes addresses: tools expect to see it so."""
    return Caller(context.version, context.client_id, f"/{context.connection.peer.host}")
