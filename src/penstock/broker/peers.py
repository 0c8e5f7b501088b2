"""Connections to the other brokers: whoever wants something of one asks here.

A broker is found by its registration: the address of the listener between brokers, and the epoch. Connections live as
long as the registration does. When it is gone, or another has taken its place, whatever still waits for an answer hears
so at once, and does not wait for a machine that may be silent.

A connection is answered in order, and some answers take long (a fetch waits for news, a forwarded request for others to
hear of it). So a request goes to a connection on which nothing is under way, and to a new one if there is none; only
when there are `LINKS_MAX` of them, requests stand behind each other.

A connection begins with ApiVersions, and every request takes the highest version that both sides have: while a cluster
is upgraded, its brokers are of two releases.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from penstock import __version__
from penstock.base.world import Address, Stream, World
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.inter_broker import InterBroker
from penstock.broker.peer_link import LinkEnded, PeerLink
from penstock.sasl.exchange import LoginFailed
from penstock.wire.api_declaration import Api
from penstock.wire.messages.k18_api_versions import API as API_VERSIONS
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.schema import Message

LINKS_MAX = 8
BACKOFF_S_MIN = 0.05
BACKOFF_S_MAX = 1.0
DOUBLINGS_MAX = 10
API_VERSIONS_VERSION = 3  # not the highest: one that every release understands, and that names our software
CLIENT_ID_PREFIX = "penstock-peer-"


class PeerError(Exception):
    """Another broker cannot be reached, or did not answer; the text says which, and why."""


class Registration(NamedTuple):
    """Where a broker is, in which of its lives."""

    address: Address
    epoch: int


class LinkLimits(NamedTuple):
    """How long a connection may take to be made (twice as long after every failure), how large an answer may be."""

    connect_s: float = 10.0
    connect_s_max: float = 30.0
    answer_bytes: int = 1 << 30


class Peers:
    """See the head of this file."""

    def __init__(
        self,
        world: World,
        view: ClusterView,
        own_id: int,
        listener_name: str,
        limits: LinkLimits | None = None,
        inter_broker: InterBroker | None = None,
    ) -> None:
        self._world = world
        self._inter_broker = inter_broker or InterBroker(world)
        self._view = view
        self._listener_name = listener_name
        self._client_id = f"{CLIENT_ID_PREFIX}{own_id}"
        self._limits = limits or LinkLimits()
        self._peers: dict[int, Peer] = {}
        self._is_closed = False
        view.on_change(self._view_changed)

    async def ask(
        self, node_id: int, api: Api, request: Message, *, version: int | None = None, timeout_s: float
    ) -> Any:
        """What a broker answers; PeerError if it cannot be reached, or no answer came.

        After a PeerError nobody knows whether the request took effect.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._ask(node_id, api, request, version)
        except TimeoutError:
            raise PeerError(f"broker {node_id} did not answer {api.name} within {timeout_s:.3g} s") from None

    async def _ask(self, node_id: int, api: Api, request: Message, version: int | None) -> Any:
        link = await self._link(node_id)
        lowest, highest = link.versions.get(api.key, (0, -1))
        chosen = min(highest, api.max_version) if version is None else version
        if not max(lowest, api.min_version) <= chosen <= highest:
            raise PeerError(f"broker {node_id} does not serve {api.name} in a version that we speak")
        try:
            return await link.ask(api, chosen, request)
        except LinkEnded as ended:
            raise PeerError(f"broker {node_id} did not answer {api.name}: {ended}") from None

    async def _link(self, node_id: int) -> PeerLink:
        while True:
            peer = self._peer(node_id)
            try:
                return await peer.link()
            except PeerError:
                if not peer.is_over:
                    raise  # otherwise it may have a new registration by now

    def _peer(self, node_id: int) -> Peer:
        if self._is_closed:
            raise PeerError(f"broker {node_id} is not asked any more: this broker stops")
        registration = self._registration(node_id)
        peer = self._peers.get(node_id)
        if peer is None or peer.registration != registration:
            self._forget(node_id)
            if registration is None:
                raise PeerError(f"broker {node_id} is not there, or has no listener {self._listener_name}")
            peer = self._peers[node_id] = Peer(
                self._world, node_id, registration, self._client_id, self._limits, self._inter_broker
            )
        return peer

    def _registration(self, node_id: int) -> Registration | None:
        broker = self._view.brokers.get(node_id)
        for endpoint in broker.endpoints if broker is not None else ():
            if endpoint.listener == self._listener_name:
                epoch = self._view.broker_epochs.get(node_id, -1)
                return Registration(Address(endpoint.host, endpoint.port), epoch)
        return None

    def _forget(self, node_id: int) -> None:
        peer = self._peers.pop(node_id, None)
        if peer is not None:
            peer.end("its registration is gone")

    async def _view_changed(self, _change: ViewChange) -> None:
        for node_id, peer in list(self._peers.items()):
            if self._registration(node_id) != peer.registration:
                self._forget(node_id)

    async def close(self) -> None:
        """End all connections, and make no new ones."""
        self._is_closed = True
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.end("this broker stops")


class Peer:
    """One broker in one of its lives, and the connections to it."""

    def __init__(
        self,
        world: World,
        node_id: int,
        registration: Registration,
        client_id: str,
        limits: LinkLimits,
        inter_broker: InterBroker,
    ) -> None:
        self.registration = registration
        self._inter_broker = inter_broker
        self._world = world
        self._node_id = node_id
        self._client_id = client_id
        self._limits = limits
        self._links: list[PeerLink] = []
        self._opening = asyncio.Lock()
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._failures = 0
        self._not_before_s = 0.0

    async def link(self) -> PeerLink:
        """A connection for the next request: one on which nothing is under way, if that is possible."""
        found = self._ready_link()
        if found is not None:
            return found
        async with self._opening:
            return self._ready_link() or await self._open()

    def _ready_link(self) -> PeerLink | None:
        usable = [link for link in self._links if link.is_usable and link.versions]
        found = min(usable, key=lambda link: link.in_flight, default=None)
        if found is not None and not found.in_flight:
            return found
        if len(self._links) < LINKS_MAX:
            return None
        if found is None:
            raise self._failed("too many requests are under way")
        return found

    # ── connecting ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> PeerLink:
        delay_s = self._not_before_s - self._world.clock.monotonic()
        if delay_s > 0:
            await asyncio.wait((self._over,), timeout=delay_s)
        self._check_life()
        growth = 1 << min(self._failures, DOUBLINGS_MAX)
        try:
            async with asyncio.timeout(min(self._limits.connect_s * growth, self._limits.connect_s_max)):
                link = await self._connect()
        except BaseException as error:
            self._failures += 1
            self._not_before_s = self._world.clock.monotonic() + min(BACKOFF_S_MIN * growth, BACKOFF_S_MAX)
            if isinstance(error, TimeoutError):
                raise self._failed(f"no connection to {self.registration.address} in time") from None
            raise
        self._failures = 0
        return link

    async def _connect(self) -> PeerLink:
        link = PeerLink(await self._stream(), self._client_id, self._limits.answer_bytes, self._links.remove)
        self._links.append(link)
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
        try:
            answer: ApiVersionsResponse = await link.ask(API_VERSIONS, API_VERSIONS_VERSION, request)
        except LinkEnded as ended:
            raise self._failed(str(ended)) from None
        if answer.error_code or not answer.api_keys:
            link.end("it does not say what it serves")
            raise self._failed("it does not say what it serves")
        try:
            await self._inter_broker.log_in(link)
        except (LinkEnded, LoginFailed) as failed:
            link.end("no login")
            raise self._failed(str(failed)) from None
        link.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        return link

    async def _stream(self) -> Stream:
        host, port = self.registration.address
        connecting = asyncio.ensure_future(self._inter_broker.connect(host, port))
        try:
            await asyncio.wait((connecting, self._over), return_when=asyncio.FIRST_COMPLETED)
            self._check_life()
            return connecting.result()
        except OSError as error:
            raise self._failed(f"no connection to {self.registration.address}: {error.strerror or error}") from None
        except BaseException:
            connecting.cancel()
            connecting.add_done_callback(_close_late)
            raise

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_over(self) -> bool:
        return self._over.done()

    def end(self, reason: str) -> None:
        """Close the connections; nothing is asked of it any more."""
        if not self._over.done():
            self._over.set_result(reason)
        for link in list(self._links):
            link.end(reason)

    def _check_life(self) -> None:
        if self._over.done():
            raise self._failed(self._over.result())

    def _failed(self, reason: str) -> PeerError:
        return PeerError(f"broker {self._node_id} cannot be reached: {reason}")


def _close_late(connecting: asyncio.Future[Stream]) -> None:
    """A connection that nobody waits for any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
