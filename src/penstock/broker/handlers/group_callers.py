"""What the handlers of groups have in common: who asks, in the groups' own words, whether it may, and for many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.groups.table import Caller

A = TypeVar("A")
B = TypeVar("B")
ASKED_AT_ONCE_MAX = 100


def caller_of(context: RequestContext) -> Caller:
    """The host has a slash in front, as Java writes addresses: tools expect to see it so."""
    return Caller(context.version, context.client_id, f"/{context.connection.peer.host}")


def check_served(broker: Broker) -> None:
    """ApiError if this broker does not serve the new group protocol."""
    if "consumer" not in broker.settings.list("group.coordinator.rebalance.protocols"):
        raise ApiError(Error.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols does not name this protocol")


async def for_each(things: Iterable[A], ask: Callable[[A], Awaitable[B]]) -> list[B]:
    """Ask for one after the other; a list of a million groups must not keep everybody else from being served."""
    answers = []
    for number, thing in enumerate(things, 1):
        answers.append(await ask(thing))
        if number % ASKED_AT_ONCE_MAX == 0:
            await asyncio.sleep(0)
    return answers
