"""The listeners of a broker and the connections they accept: who may connect, who is thrown out, and a quiet log.

Limits: `max.connections` for all listeners together and for each by itself, `max.connections.per.ip` (with overrides),
idle connections, unfinished frames, unread answers. One sweep a second looks after all of them. Clients that take all
connections do not keep brokers apart: on a listener that only brokers use, a connection is taken all the same, and the
client that was silent for the longest time loses its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.base.world import Address, Clock, Listener, Network, SocketOptions, Stream
from penstock.broker.connection import Connection, Dispatch, Intake
from penstock.broker.connection_rates import ConnectionRates
from penstock.broker.peer_log import PeerLog

SWEEP_S = 1.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How much the server takes."""

    connections_max: int
    connections_per_ip_max: int
    per_ip_overrides: Mapping[str, int]
    idle_s_max: float
    frame_s_max: float = 60.0
    per_listener_max: Mapping[str, int] = field(default_factory=dict)
    brokers_listener: str | None = None
    """The listener between brokers, where clients have others."""

    def allowed_from(self, host: str) -> int:
        return self.per_ip_overrides.get(host, self.connections_per_ip_max)


@dataclass(slots=True)
class Traffic:
    """What went over the connections of one listener."""

    accepted: int = 0
    connections: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0

    def copy(self) -> Traffic:
        return replace(self)


class Greeting(Protocol):
    """What a listener asks of those who connect to it: TLS, a login, or both."""

    def secured(self, stream: Stream) -> Stream:
        """The stream as the connection uses it."""
        ...

    def meet(self, connection: Connection, stream: Stream) -> None:
        """A new connection over such a stream: nothing of it has been read yet."""
        ...


class Server:
    """Accepts, counts and sweeps connections."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        intake: Intake,
        limits: ConnectionLimits,
        dispatch: Dispatch,
        peer_log: PeerLog,
    ) -> None:
        self.limits = limits
        self.peer_log = peer_log
        self.ended: dict[str, Traffic] = {}
        """By listener: what went over connections that are closed, and how many were accepted at all."""
        self.refused: Counter[str] = Counter()
        """By the setting that was the reason."""
        self.broken = 0
        """Connections that were closed because of what the peer did, or did not do."""
        self._network = network
        self._clock = clock
        self._intake = intake
        self._dispatch = dispatch
        self._listeners: list[Listener] = []
        self._greetings: dict[str, Greeting | None] = {}
        self._connections: dict[Connection, None] = {}
        self._from_host: Counter[str] = Counter()
        self._on_listener: Counter[str] = Counter()
        self._is_draining = False
        self._early: list[tuple[Stream, str]] | None = []  # those who came before the broker can serve
        self.rates: ConnectionRates | None = None
        """Where there are limits to how fast connections come."""

    async def listen(
        self, name: str, host: str, port: int, options: SocketOptions, greeting: Greeting | None = None
    ) -> Address:
        """Open one listener; returns where it really listens (port 0 chooses a free one).

        `greeting` is what the listener asks of those who connect, if it asks for anything.
        """
        self._greetings[name] = greeting
        listener = await self._network.listen(host, port, lambda stream: self._accept(stream, name), options)
        self._listeners.append(listener)
        self.ended.setdefault(name, Traffic())
        return listener.address

    @property
    def connections(self) -> list[Connection]:
        """Those that are open."""
        return list(self._connections)

    def forget_shortcuts(self) -> None:
        """What was decided for connections may not hold any more: every request goes the ordinary way again."""
        for connection in self._connections:
            connection.forget_shortcuts()

    @property
    def request_bytes(self) -> int:
        """The memory of requests that are not whole, or not done with."""
        return self._intake.owned_bytes

    def open(self) -> None:
        """Everything is there: serve those who wait, and all who come."""
        early, self._early = self._early or [], None
        for stream, listener_name in early:
            self._accept(stream, listener_name)

    @property
    def _taken(self) -> int:
        return len(self._connections) + (self.rates.waiting_count if self.rates is not None else 0)

    def _accept(self, stream: Stream, listener_name: str) -> None:
        host = stream.peer.host
        waiting = self._early
        if waiting is not None and len(waiting) < self.limits.connections_max:
            waiting.append((stream, listener_name))
        elif self._is_draining:
            stream.close()
        elif self._is_full(listener_name):
            self._refuse_full(stream, f"{self._on_listener[listener_name]} connections to {listener_name} are open")
        elif waiting is not None or (
            self._taken >= self.limits.connections_max and not self._has_made_room(listener_name)
        ):
            self._refuse_full(stream, f"{self.limits.connections_max} connections are open")
        elif self._is_crowded(host):
            self._refuse_crowded(stream)
        elif self.rates is not None:
            self.rates.take(stream, listener_name, self._serve)
        else:
            self._serve(stream, listener_name)

    def _is_full(self, listener_name: str) -> bool:
        listener_max = self.limits.per_listener_max.get(listener_name)
        return listener_max is not None and self._on_listener[listener_name] >= listener_max

    def _refuse_full(self, stream: Stream, reason: str) -> None:
        self.peer_log.warn(stream.peer.host, f"refused: {reason} (max.connections)")
        self.refused["max.connections"] += 1
        stream.close()

    def _is_crowded(self, host: str) -> bool:
        return self._from_host[host] >= self.limits.allowed_from(host)

    def _refuse_crowded(self, stream: Stream) -> None:
        self.peer_log.warn(stream.peer.host, "refused: too many connections from this address (max.connections.per.ip)")
        self.refused["max.connections.per.ip"] += 1
        stream.close()

    def _has_made_room(self, listener_name: str) -> bool:
        """For a broker, at the expense of the client that was silent for the longest time."""
        if listener_name != self.limits.brokers_listener:
            return False
        others = (each for each in self._connections if each.listener_name != listener_name)
        silent = min(others, key=lambda each: (each.was_active, each.last_active), default=None)
        if silent is None:
            return False
        silent.close("a broker needed a connection (max.connections)")
        return True

    def _serve(self, stream: Stream, listener_name: str) -> None:
        is_full = len(self._connections) >= self.limits.connections_max and not self._has_made_room(listener_name)
        if self._is_draining or is_full or self._is_full(listener_name):
            stream.close()  # that was not so when it began to wait
        elif self._is_crowded(stream.peer.host):
            self._refuse_crowded(stream)
        else:
            host = stream.peer.host
            self._from_host[host] += 1
            self._on_listener[listener_name] += 1
            greeting = self._greetings[listener_name]
            if greeting is not None:
                stream = greeting.secured(stream)
            connection = Connection(stream, listener_name, self._intake, self._clock, self._dispatch, self._closed)
            self._connections[connection] = None
            self.ended[listener_name].accepted += 1
            if greeting is not None:
                greeting.meet(connection, stream)

    def _closed(self, connection: Connection, reason: str | None) -> None:
        del self._connections[connection]
        host = connection.peer.host
        self._from_host[host] -= 1
        if not self._from_host[host]:
            del self._from_host[host]
        self._on_listener[connection.listener_name] -= 1
        ended = self.ended[connection.listener_name]
        ended.received_bytes += connection.received_bytes
        ended.sent_bytes += connection.sent_bytes
        if reason:
            self.broken += 1
            self.peer_log.warn(host, f"closed the connection: {reason}")

    async def sweep_forever(self) -> None:
        """Once a second: connections that are overdue or idle for too long."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep(self._clock.monotonic())

    def sweep(self, now: float) -> None:
        for connection in list(self._connections):
            if connection.was_active:
                connection.was_active = False
                connection.last_active = now
            elif self._intake.waiting and connection.is_stalled:
                connection.close("a request that stood still while others waited for memory")
                continue
            reason = connection.is_overdue(now, self.limits.frame_s_max)
            if reason is not None:
                connection.close(reason)
            elif now - connection.last_active > self.limits.idle_s_max and connection.is_idle:
                connection.close(None)
            elif connection.login is not None:
                connection.login.check(now)

    async def stop(self, drain_s_max: float) -> None:
        """Take nothing new, let what is under way end, then close."""
        self._is_draining = True
        for listener in self._listeners:
            listener.close()
        for stream, _ in self._early or ():
            stream.close()
        if self.rates is not None:
            self.rates.stop()
        for connection in list(self._connections):
            connection.mute(True)
        deadline = self._clock.monotonic() + drain_s_max
        while any(connection.owes_answer for connection in self._connections):
            if self._clock.monotonic() > deadline:
                break
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close(None)
