"""The metrics of a broker: everything that is told, the text of one scrape, and where it is served.

The text is made in pieces, so that thousands of partitions hold up nobody; of all scrapes that are under way together
one piece is made in each turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

from penstock.base.settings import SettingsError
from penstock.base.world import Address
from penstock.broker.http_guard import LISTENER_NAME, HttpGuard
from penstock.broker.http_metrics import HttpMetrics
from penstock.broker.metrics_cluster import CLUSTER, MEMBER
from penstock.broker.metrics_format import Section, line
from penstock.broker.metrics_groups import GROUPS
from penstock.broker.metrics_partitions import COMPACTION, DISKS, PARTITIONS, TOTALS
from penstock.broker.metrics_process import PROCESS
from penstock.broker.metrics_quotas import QUOTAS
from penstock.broker.metrics_requests import CONNECTIONS, REQUESTS
from penstock.broker.metrics_scrape import Metered, Scrape

#: In the order in which they are told. What counts how much was left out comes after what leaves it out.
SECTIONS: tuple[Section[Scrape], ...] = (
    MEMBER,
    CLUSTER,
    REQUESTS,
    CONNECTIONS,
    QUOTAS,
    PARTITIONS,
    GROUPS,
    TOTALS,
    COMPACTION,
    DISKS,
    PROCESS,
)
LINES_AT_ONCE = 200


class MetricsError(Exception):
    """The metrics cannot be served as the settings say; the text says what to do."""


class Metrics:
    """The metrics of one broker. `address` is where they are served, once they are."""

    def __init__(self, metered: Metered) -> None:
        self.address: Address | None = None
        self.is_healthy = False  # whether the broker serves its clients
        self._metered = metered
        self._turn = asyncio.Lock()
        self._http: HttpMetrics | None = None

    async def serve(self) -> None:
        """Serve them where the settings say, if they do; raises MetricsError."""
        broker = self._metered.broker
        settings, world = broker.settings, broker.world
        listener = settings.text("metrics.listener")
        if not listener:
            return
        where = _address_of(listener.removesuffix("+"))
        try:
            guard = HttpGuard(where, world, settings, broker.users, broker.rights, broker.audit.record)
        except SettingsError as error:
            raise MetricsError("; ".join(error.problems)) from error
        http = HttpMetrics(world.network, self.text, is_healthy=lambda: self.is_healthy, guard=guard)
        listen = http.listen_nearby if listener.endswith("+") else http.listen
        try:
            self.address = await listen(*where)
        except OSError as error:
            raise MetricsError(
                f"cannot serve metrics on {where}: {error.strerror}; choose another port with metrics.listener"
            ) from error
        self._http = http
        broker.greetings.add(LISTENER_NAME, guard)
        self._metered.loop_delay.start()

    async def stop(self) -> None:
        self._metered.loop_delay.stop()
        if self._http is not None:
            await self._http.close()

    async def text(self) -> AsyncGenerator[bytes]:
        """One scrape, piece by piece."""
        async with self._turn:
            scrape = await Scrape.begin(self._metered)
        pieces = _pieces(scrape)
        while True:
            async with self._turn:
                piece = next(pieces, None)
                await asyncio.sleep(0)
            if piece is None:
                return
            yield piece


def _address_of(listener: str) -> Address:
    host, _, port = listener.rpartition(":")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _pieces(scrape: Scrape) -> Iterator[bytes]:
    lines: list[str] = []
    for section in SECTIONS:
        for family in section.families:
            lines.append(family.head)
            for sample in family.read(scrape):
                lines.append(line(family.name, sample))
                if len(lines) >= LINES_AT_ONCE:
                    yield "".join(lines).encode(errors="replace")
                    lines.clear()
    yield "".join(lines).encode(errors="replace")
