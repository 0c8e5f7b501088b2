"""How fast connections may come: in all, on one listener (`max.connection.creation.rate`), and from one address.

Whoever comes too fast in all has to wait a little until they are served, in order. An address that has a quota of its
own and is over it is not served at all: its connection stays open for as long as it would have to wait, and is closed
then, so that a peer that connects again at once does not gain by it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.base.addresses import plain_address
from penstock.base.world import Stream
from penstock.broker.client_quotas import METERS_SWEPT_FROM, ClientQuotas
from penstock.security.quota_rates import Meter
from penstock.security.quotas import CONNECTION

UNLIMITED = 2**31 - 1
DETAINED_MAX = 1000

Serve = Callable[[Stream, str], None]


class ConnectionRates:
    """See the head of this file. `rate_of` is what the settings say for a listener, or ("") for all together."""

    def __init__(self, quotas: ClientQuotas, rate_of: Callable[[str], int]) -> None:
        self._quotas = quotas
        self._rate_of = rate_of
        self._meters: dict[str, Meter] = {}  # by listener, or "" for all
        self._addresses: dict[str, Meter] = {}
        self._swept_from = METERS_SWEPT_FROM
        self._waiting: deque[tuple[Stream, str, Serve]] = deque()
        self._detained: dict[Stream, asyncio.TimerHandle] = {}
        self._is_stopped = False

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def take(self, stream: Stream, listener_name: str, serve: Serve) -> None:
        """Serve a new connection now or a little later, or close it after a while."""
        wait_ms = self._address_wait_ms(plain_address(stream.peer.host))
        if wait_ms:
            self._quotas.throttled[CONNECTION].add(wait_ms)
            self._detain(stream, wait_ms)
        elif self._waiting:
            self._waiting.append((stream, listener_name, serve))
        else:
            wait_ms = self._wait_ms(listener_name)
            if wait_ms:
                self._waiting.append((stream, listener_name, serve))
                asyncio.get_running_loop().call_later(wait_ms / 1000, self._next)
            else:
                serve(stream, listener_name)

    def stop(self) -> None:
        """Close those who wait."""
        self._is_stopped = True
        for stream, _, _ in self._waiting:
            stream.close()
        self._waiting.clear()
        for stream, timer in self._detained.items():
            timer.cancel()
            stream.close()
        self._detained.clear()

    def _next(self) -> None:
        """The first of those who wait has waited long enough; then those behind it."""
        if self._is_stopped:
            return
        stream, listener_name, serve = self._waiting.popleft()
        serve(stream, listener_name)
        while self._waiting:
            wait_ms = self._wait_ms(self._waiting[0][1])
            if wait_ms:
                asyncio.get_running_loop().call_later(wait_ms / 1000, self._next)
                return
            stream, listener_name, serve = self._waiting.popleft()
            serve(stream, listener_name)

    def _wait_ms(self, listener_name: str) -> int:
        return max(self._rated(""), self._rated(listener_name))

    def _rated(self, name: str) -> int:
        rate = self._rate_of(name)
        if rate >= UNLIMITED:
            return 0
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = self._new_meter()
        meter.bound = rate
        return meter.take(1, self._quotas.now_ms())

    def _address_wait_ms(self, address: str) -> int:
        limit = self._quotas.table.connections_per_s(address)
        if limit is None:
            return 0
        meter = self._addresses.get(address)
        if meter is None:
            self._sweep()
            meter = self._addresses[address] = self._new_meter()
        meter.bound = limit
        return meter.take_or_wait(1, self._quotas.now_ms())

    def _new_meter(self) -> Meter:
        return Meter(self._quotas.windows, throttle_ms_max=self._quotas.windows.size_ms)

    def _sweep(self) -> None:
        if len(self._addresses) >= self._swept_from:
            now_ms = self._quotas.now_ms()
            self._addresses = {key: meter for key, meter in self._addresses.items() if not meter.is_idle(now_ms)}
            self._swept_from = max(METERS_SWEPT_FROM, 2 * len(self._addresses))

    def _detain(self, stream: Stream, wait_ms: int) -> None:
        if len(self._detained) >= DETAINED_MAX:
            stream.close()
            return
        loop = asyncio.get_running_loop()
        self._detained[stream] = loop.call_later(wait_ms / 1000, self._let_go, stream)

    def _let_go(self, stream: Stream) -> None:
        del self._detained[stream]
        stream.close()
