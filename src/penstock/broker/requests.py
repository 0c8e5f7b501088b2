"""From a frame to its handler, and from what the handler answers to a frame.

Three kinds of handler, by how much they may cost:
- *hot* (Produce, Fetch): gets the raw frame, and returns the raw response or reserves a slot; a plain call.
- *plain*: gets the decoded request and returns the response message.
- *async*: the same as a coroutine, for what must wait.

A request that cannot be decoded, or of a version that is not served, closes the connection: the peer is not speaking
our language, and there is no field to say so in. ApiVersions is the exception: it is how peers find the language.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, TypeAlias

from penstock.base.errors import Error
from penstock.base.world import Clock
from penstock.broker._exchange import TIMED_ONE_IN, FrameDispatch
from penstock.broker.client_quotas import ClientQuotas, Timed
from penstock.broker.connection import Connection, ConnectionBroken, Response
from penstock.broker.peer_log import PeerLog
from penstock.broker.request_counts import ApiCounts
from penstock.security.principal import Principal
from penstock.wire.api_declaration import API_VERSIONS_KEY, BETWEEN_BROKERS, FIRST_OWN_KEY, Api
from penstock.wire.codec import decoder, encoder
from penstock.wire.messages.k00_produce import API as PRODUCE
from penstock.wire.messages.k01_fetch import API as FETCH
from penstock.wire.messages.k18_api_versions import API as API_VERSIONS
from penstock.wire.messages.k18_api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from penstock.wire.schema import ProtocolError

logger = logging.getLogger(__name__)

CLIENT_ID_LENGTH_MAX = 1000
"""It is kept as long as the connection, and by quotas for a while longer; a longer one is known by its beginning."""

_HEADER = Struct(">hhih")  # api key, version, correlation id, length of the client id
_SIZE_AND_CORRELATION = Struct(">ii")
_SIZE = Struct(">i")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, and how. A request that another broker has handed on is not its own: see `forwarding.py`."""

    connection: Connection
    version: int
    correlation_id: int
    client_id: str
    api_key: int
    principal: Principal
    host: str
    is_broker_itself: bool = False
    """A broker of this cluster that asks for itself, and may do everything."""

    @classmethod
    def of(cls, connection: Connection, api: Api, version: int, correlation_id: int) -> RequestContext:
        """Of a request that came over a connection."""
        client_id, host = connection.client_id or "", connection.peer.host
        return cls(connection, version, correlation_id, client_id, api.key, connection.principal, host)


HotHandler: TypeAlias = Callable[[Connection, int, int, memoryview, int], Response | None]
"""(connection, version, correlation id, frame, where the body begins)"""

PlainHandler: TypeAlias = Callable[[Any, RequestContext], Any]
AsyncHandler: TypeAlias = Callable[[Any, RequestContext], Awaitable[Any]]


class Dispatcher(FrameDispatch):
    """The table of what this broker serves; called once for each frame."""

    def __init__(self, peer_log: PeerLog, clock: Clock, quotas: ClientQuotas | None = None) -> None:
        super().__init__()
        self._quotas = quotas
        self._peer_log = peer_log
        self._monotonic = clock.monotonic
        self._routes: dict[int, tuple[Api, HotHandler, ApiCounts]] = {}
        self._counts: dict[int, ApiCounts] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def serve_hot(self, api: Api, handler: HotHandler) -> None:
        """The handler itself counts the errors in its answers."""
        self._routes[api.key] = (api, handler, self.counts_of(api))

    def serve(self, api: Api, handler: PlainHandler) -> None:
        self._routes[api.key] = (api, self._calling(api, handler), self.counts_of(api))

    def serve_async(self, api: Api, handler: AsyncHandler) -> None:
        self._routes[api.key] = (api, self._awaiting(api, handler), self.counts_of(api))

    @property
    def counts(self) -> list[ApiCounts]:
        """Of all APIs, in the order of their keys."""
        return [counts for _, counts in sorted(self._counts.items())]

    def counts_of(self, api: Api) -> ApiCounts:
        """What is counted of an API. Produces like one before them are in `again_count` instead of `received`."""
        return self._counts.setdefault(api.key, ApiCounts(api.name, self._monotonic))

    async def stop(self) -> None:
        """End the requests that are still being worked on; nobody waits for their answers any more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def served(self) -> list[Api]:
        return [api for api, *_ in sorted(self._routes.values(), key=lambda route: route[0].key)]

    def route(self, connection: Connection, frame: memoryview) -> Response | None:
        """Answer a request that is not like one before it."""
        try:
            key, version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
        except Exception:
            raise ConnectionBroken("a frame without a whole request header") from None
        route = self._routes.get(key)
        if route is None:
            raise ConnectionBroken(f"a request with the unknown API key {key}")
        api, handler, counts = route
        if not api.min_version <= version <= api.max_version:
            if key == API_VERSIONS_KEY:
                return self._refuse_api_versions(correlation_id)
            raise ConnectionBroken(f"{api.name} version {version} (served: {api.min_version} to {api.max_version})")
        position = 10 + client_id_length if client_id_length > 0 else 10
        try:
            if connection.client_id is None:
                connection.client_id = str(frame[10:position], "utf-8")[:CLIENT_ID_LENGTH_MAX]
            if version >= api.flexible_since:
                position = _skip_tags(frame, position)
            counts.received += 1
            started_s = self._monotonic()
            response = handler(connection, version, correlation_id, frame, position)
        except (ProtocolError, UnicodeDecodeError) as error:
            raise ConnectionBroken(f"{api.name} version {version}: {error}") from None
        except ConnectionBroken:
            raise
        except Exception:
            raise self._failed(f"{api.name} version {version}", connection) from None
        quotas = self._counting(connection, api, version)
        if quotas is not None and not (connection.follows and key == FETCH.key):
            quotas.spent(connection, self._monotonic() - started_s)
        if response is None:
            connection.count_when_answered(counts, started_s)
        else:
            counts.ended(started_s)
        return response

    def time_again(self, again: Callable[[memoryview], bytes | None], frame: memoryview) -> bytes | None:
        """Answer a produce like one before it, and time it for those that are not timed."""
        started_s = self._monotonic()
        response = again(frame)
        if response:
            self._counts[PRODUCE.key].ended(started_s, weight=TIMED_ONE_IN)
        return response

    def _failed(self, what: str, connection: Connection) -> ConnectionBroken:
        """A bug of ours: the log has it, and the client tries again on a new connection."""
        if self._peer_log.allows(connection.peer.host):
            logger.exception("%s from %s failed", what, connection.peer)
        return ConnectionBroken(f"{what} failed here; see the log")

    def _refuse_api_versions(self, correlation_id: int) -> Response:
        served = ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=api_version_rows(self.served))
        return frame_of(served, API_VERSIONS, 0, correlation_id)

    def _calling(self, api: Api, handler: PlainHandler) -> HotHandler:
        counts = self.counts_of(api)

        def call(
            connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
        ) -> Response | None:
            request, _ = decoder(api.request, version)(frame, position)
            context = RequestContext.of(connection, api, version, correlation_id)
            answer = handler(request, context)
            counts.count_errors(answer)
            self._tell_throttle(answer, connection, api, version)
            return frame_of(answer, api, version, correlation_id)

        return call

    def _awaiting(self, api: Api, handler: AsyncHandler) -> HotHandler:
        counts = self.counts_of(api)

        def call(
            connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
        ) -> Response | None:
            request, _ = decoder(api.request, version)(frame, position)
            context = RequestContext.of(connection, api, version, correlation_id)
            slot = connection.reserve()

            async def run() -> None:
                try:
                    answer = await self._timed(handler(request, context), connection, api, version)
                    counts.count_errors(answer)
                    self._tell_throttle(answer, connection, api, version)
                    connection.fill(slot, frame_of(answer, api, version, correlation_id))
                except Exception:
                    connection.close(str(self._failed(f"{api.name} version {version}", connection)))

            task = asyncio.get_running_loop().create_task(run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return None

        return call

    def _counting(self, connection: Connection, api: Api, version: int) -> ClientQuotas | None:
        """Where the time of a request counts, if it does."""
        quotas = self._quotas
        if quotas is None or not quotas.limits_requests or quotas.is_among_brokers(connection, api.key, version):
            return None
        return quotas

    async def _timed(self, awaited: Awaitable[Any], connection: Connection, api: Api, version: int) -> Any:
        """What is awaited; its time is counted where that matters."""
        quotas = self._counting(connection, api, version)
        if quotas is None:
            return await awaited
        timed = Timed(awaited, self._monotonic)
        answer = await timed
        quotas.spent(connection, timed.spent_s)
        return answer

    def _tell_throttle(self, answer: Any, connection: Connection, api: Api, version: int) -> None:
        quotas = self._counting(connection, api, version)
        if quotas is not None:
            throttle_ms = quotas.requested(connection)
            if throttle_ms and hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)


def frame_of(message: Any, api: Api, version: int, correlation_id: int) -> bytearray:
    """A whole response frame: size, header, body."""
    out = bytearray(_SIZE_AND_CORRELATION.pack(0, correlation_id))
    if api.response_header_version(version) >= 1:
        out.append(0)
    encoder(type(message), version)(message, out)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def api_version_rows(served: list[Api], *, with_own: bool = False) -> list[ApiVersionsResponseApiVersion]:
    """The rows of ApiVersions: key, lowest and highest version; with Penstock's own for those who ask for them."""
    return [
        ApiVersionsResponseApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        for api in served
        if with_own or (api.key < FIRST_OWN_KEY and api.key not in BETWEEN_BROKERS)
    ]


def _skip_tags(frame: memoryview, position: int) -> int:
    """Past the tagged fields of a flexible request header; almost always there are none."""
    if position < len(frame) and frame[position] == 0:
        return position + 1
    count, position = _unsigned_varint(frame, position)
    for _ in range(count):
        _, position = _unsigned_varint(frame, position)
        size, position = _unsigned_varint(frame, position)
        position += size
        if position > len(frame):
            raise ProtocolError("a tagged field of the request header goes beyond the frame")
    return position


def _unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        if position >= len(frame):
            raise ProtocolError("the request header ends in a number")
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ProtocolError("a number in the request header is too long")
