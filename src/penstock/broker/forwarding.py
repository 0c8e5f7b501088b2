"""Requests that only the controller decides: any broker takes them, and hands them on whole.

What the controller answers is the answer. Where there is no controller, or it cannot be reached, or it has just lost
the role, the request is made again, to whoever has the role then, until its time is over; then each part of it is
refused with an error that clients retry. A request whose answer was lost may have been carried out: made again, it says
that the topic exists already, as if the client itself had repeated it.

What is handed on travels in an envelope with the name of whoever asked (`wire/messages/k20007_envelope.py`), and the
controller judges it by the rights of that principal. Only brokers may send envelopes. A broker that gets one never
hands it on: it is the controller, or says that it is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.base.errors import ApiError, Error
from penstock.base.world import Clock
from penstock.broker.cluster_view import ClusterView
from penstock.broker.controller_role import ControllerRole
from penstock.broker.peers import PeerError, Peers
from penstock.broker.requests import AsyncHandler, RequestContext
from penstock.broker.rights import Rights
from penstock.security.acls import Operation, ResourceType
from penstock.security.principal import Principal
from penstock.wire.api_declaration import Api
from penstock.wire.codec import decode, encode
from penstock.wire.messages.k20007_envelope import API as ENVELOPE
from penstock.wire.messages.k20007_envelope import EnvelopeRequest, EnvelopeResponse
from penstock.wire.schema import Message, ProtocolError
from penstock.zookeeper.errors import CoordinationError

logger = logging.getLogger(__name__)

RETRY_S_MIN = 0.05
RETRY_S_MAX = 0.4
TIMEOUT_S_MIN = 1.0
TIMEOUT_S_MAX = 300.0

#: The answer that refuses every part of a request.
Refused = Callable[[Any, ApiError], Message]


class _Forwarded(NamedTuple):
    """An API that is handed on, and who serves it where the controller is."""

    api: Api
    here: AsyncHandler


class _NotDecided(Exception):
    """This attempt came to nothing; the text says why."""


class Forwarding:
    """The way to the controller, wherever it is. `timeout_s` is for requests that bring none."""

    def __init__(
        self,
        own_id: int,
        clock: Clock,
        role: ControllerRole,
        view: ClusterView,
        peers: Peers,
        rights: Rights,
        timeout_s: float,
    ) -> None:
        self.timeout_s = timeout_s
        self._rights = rights
        self._forwarded: dict[int, _Forwarded] = {}
        self._own_id = own_id
        self._clock = clock
        self._role = role
        self._view = view
        self._peers = peers

    def handler(self, api: Api, here: AsyncHandler, refused: Refused) -> AsyncHandler:
        """Serve an API at every broker; `here` serves it where the controller is."""

        self._forwarded[api.key] = _Forwarded(api, here)

        async def serve(request: Any, context: RequestContext) -> Any:
            timeout_s = getattr(request, "timeout_ms", self.timeout_s * 1000) / 1000
            try:
                return await self.decided(api, request, lambda: here(request, context), context, timeout_s=timeout_s)
            except ApiError as error:
                return refused(request, error)

        return serve

    async def on_behalf(self, api: Api, request: Message, asker: RequestContext, *, timeout_s: float) -> Any:
        """What the controller answers to a request that whoever asked for something else needs: by their rights, and
        counted as theirs."""
        asker = replace(asker, api_key=api.key, version=api.max_version)
        here = self._forwarded[api.key].here
        return await self.decided(api, request, lambda: here(request, asker), asker, timeout_s=timeout_s)

    async def decided(
        self,
        api: Api,
        request: Message,
        here: Callable[[], Awaitable[Any]],
        asker: RequestContext | None = None,
        *,
        timeout_s: float,
    ) -> Any:
        """What the controller answers, once this broker knows what it decided; ApiError if none could be asked.

        `here` is the way to the same answer if this broker is the controller. Without an asker the broker itself asks.
        """
        give_up_at = self._clock.monotonic() + min(max(timeout_s, TIMEOUT_S_MIN), TIMEOUT_S_MAX)
        retry_s = RETRY_S_MIN
        while True:
            try:
                return await self._attempt(api, request, here, asker, give_up_at)
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
        asker: RequestContext | None,
        give_up_at: float,
    ) -> Any:
        is_here = self._role.is_controller
        answer = await (here() if is_here else self._ask(api, request, asker, give_up_at))
        if _says_not_controller(answer):
            raise _NotDecided("the controller has just changed")
        if not is_here:
            await self._look_again(give_up_at)  # who asked here sees what was decided here
        return answer

    async def _ask(self, api: Api, request: Message, asker: RequestContext | None, give_up_at: float) -> Any:
        controller_id = self._view.controller_id
        if controller_id in (-1, self._own_id):
            raise _NotDecided("there is no controller at the moment")
        version = api.max_version if asker is None else asker.version
        envelope = EnvelopeRequest(api_key=api.key, api_version=version, request=encode(request, version))
        envelope.principal = None
        if asker is not None:
            envelope.principal, envelope.host, envelope.client_id = str(asker.principal), asker.host, asker.client_id
        try:
            answer: EnvelopeResponse = await self._peers.ask(
                controller_id, ENVELOPE, envelope, timeout_s=self._left_s(give_up_at)
            )
        except PeerError as error:
            raise _NotDecided(f"the controller did not answer: {error}") from None
        if answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED:
            logger.error("the controller does not take this broker for one: give its user CLUSTER_ACTION (super.users)")
        if answer.error_code or answer.response is None:
            raise _NotDecided(f"the controller says {Error(answer.error_code).name}")
        response, _ = decode(api.response, version, answer.response)
        return response

    # ── at the controller ────────────────────────────────────────────────────────────────────────────────────────

    async def open_envelope(self, envelope: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
        """Serve what another broker has handed on, as if whoever asked it had asked here."""
        try:
            self._rights.check(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
            if not self._role.is_controller:
                raise ApiError(Error.NOT_CONTROLLER)
            api, here = self._known(envelope)
            request, _ = decode(api.request, envelope.api_version, envelope.request)
            asker = replace(context, version=envelope.api_version, api_key=api.key, is_broker_itself=True)
            if envelope.principal is not None:
                principal = Principal.parse(envelope.principal)
                asker = replace(
                    asker,
                    principal=principal,
                    host=envelope.host,
                    client_id=envelope.client_id,
                    is_broker_itself=False,
                )
        except ApiError as error:
            return EnvelopeResponse(error_code=error.error, response=None)
        except (ProtocolError, ValueError):
            return EnvelopeResponse(error_code=Error.INVALID_REQUEST, response=None)
        return EnvelopeResponse(response=encode(await here(request, asker), envelope.api_version))

    def _known(self, envelope: EnvelopeRequest) -> _Forwarded:
        known = self._forwarded.get(envelope.api_key)
        if known is None:
            raise ApiError(Error.INVALID_REQUEST)
        if not known.api.min_version <= envelope.api_version <= known.api.max_version:
            raise ApiError(Error.UNSUPPORTED_VERSION)
        return known

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
