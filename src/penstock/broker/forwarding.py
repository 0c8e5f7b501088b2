"""Requests that only the controller decides: any broker takes them, and hands them on whole.

What the controller answers is the answer. Where there is no controller, or it cannot be reached, or it has just lost
the role, the request is made again, to whoever has the role then, until its time is over; then each part of it is
refused with an error that clients retry. A request whose answer was lost may have been carried out: made again, it says
that the topic exists already, as if the client itself had repeated it.

A broker that is asked by another broker never hands on: it is the controller, or says that it is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.base.errors import ApiError, Error
from penstock.base.world import Clock
from penstock.broker.cluster_view import ClusterView
from penstock.broker.controller_role import ControllerRole
from penstock.broker.peers import CLIENT_ID_PREFIX, PeerError, Peers
from penstock.broker.requests import AsyncHandler, RequestContext
from penstock.wire.api_declaration import Api
from penstock.wire.schema import Message
from penstock.zookeeper.errors import CoordinationError

logger = logging.getLogger(__name__)

RETRY_S_MIN = 0.05
RETRY_S_MAX = 0.4
TIMEOUT_S_MIN = 1.0
TIMEOUT_S_MAX = 300.0

#: The answer that refuses every part of a request.
Refused = Callable[[Any, ApiError], Message]


class _NotDecided(Exception):
    """This attempt came to nothing; the text says why."""


class Forwarding:
    """The way to the controller, wherever it is. `timeout_s` is for requests that bring none."""

    def __init__(
        self, own_id: int, clock: Clock, role: ControllerRole, view: ClusterView, peers: Peers, timeout_s: float
    ) -> None:
        self.timeout_s = timeout_s
        self._own_id = own_id
        self._clock = clock
        self._role = role
        self._view = view
        self._peers = peers

    def handler(self, api: Api, here: AsyncHandler, refused: Refused) -> AsyncHandler:
        """Serve an API at every broker; `here` serves it where the controller is."""

        async def serve(request: Any, context: RequestContext) -> Any:
            if context.client_id.startswith(CLIENT_ID_PREFIX):
                if self._role.is_controller:
                    return await here(request, context)
                return refused(request, ApiError(Error.NOT_CONTROLLER))
            timeout_s = getattr(request, "timeout_ms", self.timeout_s * 1000) / 1000
            try:
                return await self.decided(
                    api, request, lambda: here(request, context), version=context.version, timeout_s=timeout_s
                )
            except ApiError as error:
                return refused(request, error)

        return serve

    async def decided(
        self,
        api: Api,
        request: Message,
        here: Callable[[], Awaitable[Any]],
        *,
        version: int | None = None,
        timeout_s: float,
    ) -> Any:
        """What the controller answers, once this broker knows what it decided; ApiError if none could be asked.

        `here` is the way to the same answer if this broker is the controller.
        """
        give_up_at = self._clock.monotonic() + min(max(timeout_s, TIMEOUT_S_MIN), TIMEOUT_S_MAX)
        retry_s = RETRY_S_MIN
        while True:
            try:
                return await self._attempt(api, request, here, version, give_up_at)
            except _NotDecided as reason:
                logger.info("%s is tried again: %s", api.name, reason)
                if self._left_s(give_up_at) <= retry_s:
                    raise ApiError(Error.REQUEST_TIMED_OUT, f"not decided in time: {reason}") from None
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_S_MAX)
            await self._look_again(give_up_at)

    async def _attempt(
        self,
        api: Api,
        request: Message,
        here: Callable[[], Awaitable[Any]],
        version: int | None,
        give_up_at: float,
    ) -> Any:
        is_here = self._role.is_controller
        answer = await (here() if is_here else self._ask(api, request, version, give_up_at))
        if _says_not_controller(answer):
            raise _NotDecided("the controller has just changed")
        if not is_here:
            await self._look_again(give_up_at)  # who asked here sees what was decided here
        return answer

    async def _ask(self, api: Api, request: Message, version: int | None, give_up_at: float) -> Any:
        controller_id = self._view.controller_id
        if controller_id in (-1, self._own_id):
            raise _NotDecided("there is no controller at the moment")
        try:
            return await self._peers.ask(
                controller_id, api, request, version=version, timeout_s=self._left_s(give_up_at)
            )
        except PeerError as error:
            raise _NotDecided(f"the controller did not answer: {error}") from None

    async def _look_again(self, give_up_at: float) -> None:
        try:
            async with asyncio.timeout(self._left_s(give_up_at)):
                await self._view.refresh()
        except (TimeoutError, CoordinationError) as error:
            logger.info("the state of the cluster could not be read: %s", error)

    def _left_s(self, give_up_at: float) -> float:
        return max(give_up_at - self._clock.monotonic(), 0.0)


def _says_not_controller(answer: Message) -> bool:
    """Whether any part of an answer says so."""
    if getattr(answer, "error_code", Error.NONE) == Error.NOT_CONTROLLER:
        return True
    parts = (getattr(answer, name) for name in type(answer).__dataclass_fields__)
    return any(_says_not_controller(row) for part in parts if _is_rows(part) for row in part)


def _is_rows(part: object) -> bool:
    return isinstance(part, list) and bool(part) and hasattr(part[0], "__dataclass_fields__")
