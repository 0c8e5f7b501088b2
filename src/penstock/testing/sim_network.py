"""The network in memory: machines with names, and the `Network` of the world for each of their processes.

One `SimNetwork` joins all simulated machines on one loop. `attach(host)` gives a process its `HostNetwork`, which is
what its world holds. Streams and listeners belong to it and end with it: a killed process's connections are closed by
its kernel, those of a machine without power just fall silent. The wires, with delays and cuts, are in `links`
(`sim_links.py`); what a connection does is in `sim_stream.py`.

    network = SimNetwork(loop, seed=1)
    network.links.cut("broker1", "broker2")      # one way; heal, split, set_delay, …
    network.reset("client", "broker1")           # ECONNRESET at both ends of every connection between them
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
from collections.abc import Callable

from penstock.base.world import Address, SocketOptions, Stream
from penstock.testing.sim_device import Crashed
from penstock.testing.sim_links import Links
from penstock.testing.sim_loop import SimLoop
from penstock.testing.sim_stream import NEUTRAL, SimStream, join, socket_error

FIRST_EPHEMERAL_PORT = 32768
ANY = ("", "0.0.0.0", "::")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class SimListener:
    """A bound port of one machine; the connections it has not accepted yet wait here."""

    def __init__(
        self, owner: HostNetwork, address: Address, local_only: bool, accept: Callable[[Stream], None]
    ) -> None:
        self.address = address
        self.local_only = local_only
        self.owner = owner
        self._accept = accept
        self._context = contextvars.copy_context()
        self._waiting: list[SimStream] = []
        self._closed = False

    def arrive(self, stream: SimStream) -> None:
        self._waiting.append(stream)
        self.owner.network.loop.call_soon(self._accept_next, context=self._context)

    def _accept_next(self) -> None:
        if self._waiting:
            self._accept(self._waiting.pop(0))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.owner.listener_closed(self)
            waiting, self._waiting = self._waiting, []
            for stream in waiting:
                stream.refuse()


class Connecting:
    """A connection being made: asks, waits while the wire is cut, and is answered or times out."""

    def __init__(self, source: HostNetwork, target: Host, local: Address, peer: Address) -> None:
        self._source = source
        self._target = target
        self._network = source.network
        self._links = source.network.links
        self._local = local
        self._peer = peer
        self.done: asyncio.Future[SimStream] = self._network.loop.create_future()
        self._timeout = self._network.loop.call_later(
            self._links.connect_timeout_s, self._fail, errno.ETIMEDOUT, context=NEUTRAL
        )
        self.retry()

    def retry(self) -> None:
        delay_s = self._links.draw_delay_s(self._source.host.name, self._target.name)
        self._network.loop.call_later(delay_s, self._arrive, context=NEUTRAL)

    def _arrive(self) -> None:
        """The question reaches the other machine, if it does."""
        if self.done.done():
            return
        here, there = self._source.host.name, self._target.name
        if not (self._links.is_open(here, there) and self._links.is_open(there, here)):
            self._links.waiting[self] = None
            return
        if (there, self._peer.port) in self._network.black_holes:
            return
        listener = self._target.listeners.get(self._peer.port)
        is_refused = (there, self._peer.port) in self._network.refused
        back_s = self._links.draw_delay_s(there, here)
        if listener is None or is_refused or (listener.local_only and here != there):
            self._network.loop.call_later(back_s, self._fail, errno.ECONNREFUSED, context=NEUTRAL)
            return
        stream = self._establish(listener)
        self._network.loop.call_later(back_s, self._succeed, stream, context=NEUTRAL)

    def _establish(self, listener: SimListener) -> SimStream:
        ours = SimStream(self._links, self._source.host.name, self._local, self._peer)
        theirs = SimStream(self._links, self._target.name, self._peer, self._local)
        join(self._links, ours, theirs)
        self._source.adopt(ours)
        listener.owner.adopt(theirs)
        self._links.trace(f"{self._local} connects to {self._peer}")
        listener.arrive(theirs)
        return ours

    def _succeed(self, stream: SimStream) -> None:
        self._timeout.cancel()
        if self.done.done() or self._source.dead:
            stream.close()
        else:
            self.done.set_result(stream)

    def _fail(self, code: int) -> None:
        self._timeout.cancel()
        self._links.waiting.pop(self, None)
        if not self.done.done() and not self._source.dead:
            self.done.set_exception(socket_error(code))


class HostNetwork:
    """The network as one process sees it."""

    def __init__(self, network: SimNetwork, host: Host) -> None:
        self.network = network
        self.host = host
        self.dead = False
        self._streams: dict[SimStream, None] = {}
        self._listeners: dict[SimListener, None] = {}

    async def listen(
        self, host: str, port: int, accept: Callable[[Stream], None], options: SocketOptions | None = None
    ) -> SimListener:
        self._check_alive()
        is_mine = host in ANY or host in LOOPBACK or host in (self.host.name, self.host.address)
        if not is_mine:
            raise socket_error(errno.EADDRNOTAVAIL)
        if port in self.host.listeners:
            raise socket_error(errno.EADDRINUSE)
        shown = {"": "0.0.0.0", "localhost": "127.0.0.1", self.host.name: self.host.address}.get(host, host)
        address = Address(shown, port or self.host.next_port())
        listener = SimListener(self, address, host in LOOPBACK, accept)
        self.host.listeners[address.port] = listener
        self._listeners[listener] = None
        self.network.links.trace(f"{self.host.name} listens on {address}")
        return listener

    async def connect(self, host: str, port: int) -> SimStream:
        self._check_alive()
        target = self.network.find(host, self.host)
        is_local = target is self.host
        ours = "127.0.0.1" if is_local and host in LOOPBACK else self.host.address
        theirs = "127.0.0.1" if is_local and host in LOOPBACK else target.address
        connecting = Connecting(self, target, Address(ours, self.host.next_port()), Address(theirs, port))
        return await connecting.done

    def adopt(self, stream: SimStream) -> None:
        self._streams[stream] = None
        stream.on_closed = lambda: self._streams.pop(stream, None)

    def listener_closed(self, listener: SimListener) -> None:
        self._listeners.pop(listener, None)
        if self.host.listeners.get(listener.address.port) is listener:
            del self.host.listeners[listener.address.port]

    def streams(self) -> list[SimStream]:
        return list(self._streams)

    def _check_alive(self) -> None:
        if self.dead:
            raise Crashed("this process has ended")

    # The end of a process

    def kill(self) -> None:
        """The process ends; its kernel closes what it had open."""
        self.dead = True
        for listener in list(self._listeners):
            listener.close()
        for stream in self.streams():
            stream.close()

    def vanish(self) -> None:
        """The machine loses power: no word to anyone."""
        self.dead = True
        for stream in self.streams():
            stream.vanish()
        for listener in list(self._listeners):
            listener.close()


class Host:
    """One machine on the network."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.listeners: dict[int, SimListener] = {}
        self._ports_count = 0

    def next_port(self) -> int:
        """A port that nobody used before."""
        while True:
            port = FIRST_EPHEMERAL_PORT + self._ports_count % (65536 - FIRST_EPHEMERAL_PORT)
            self._ports_count += 1
            if port not in self.listeners:
                return port


class SimNetwork:
    """All machines of a simulation and what lies between them."""

    def __init__(self, loop: SimLoop, seed: int = 0, *, partial_chance: float = 0.1) -> None:
        self.loop = loop
        self.links = Links(loop, seed, partial_chance)
        self.hosts: dict[str, Host] = {}
        self.refused: set[tuple[str, int]] = set()
        self.black_holes: set[tuple[str, int]] = set()
        self._processes: list[HostNetwork] = []

    def host(self, name: str) -> Host:
        """The machine of that name, made when first asked for."""
        if name not in self.hosts:
            number = len(self.hosts) + 1
            self.hosts[name] = Host(name, f"10.0.{number // 256}.{number % 256}")
        return self.hosts[name]

    def attach(self, name: str) -> HostNetwork:
        """The `Network` for a new process of that machine."""
        process = HostNetwork(self, self.host(name))
        self._processes = [other for other in self._processes if not other.dead]
        self._processes.append(process)
        return process

    def find(self, name: str, seeker: Host) -> Host:
        """Look a name or an address up, as a resolver does."""
        if name in LOOPBACK:
            return seeker
        for host in self.hosts.values():
            if name in (host.name, host.address):
                return host
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # Faults beside those of the links

    def reset(self, one: str, other: str) -> None:
        """Break every connection between two machines at once: ECONNRESET at both ends."""
        self.links.trace(f"reset {one} <-> {other}")
        ends = {(one, self.host(other).address), (other, self.host(one).address)}
        for process in self._processes:
            for stream in process.streams():
                if (stream.host, stream.peer.host) in ends:
                    stream.abort(errno.ECONNRESET)

    def refuse(self, host: str, port: int) -> None:
        """Connecting there is refused from now on, even if something listens."""
        self.refused.add((host, port))

    def black_hole(self, host: str, port: int) -> None:
        """Connecting there is never answered from now on."""
        self.black_holes.add((host, port))

    def clear_faults(self) -> None:
        """Mend all links and allow all connections."""
        self.refused.clear()
        self.black_holes.clear()
        self.links.heal_all()
