"""Metrics of quotas: how often clients were held, and for how long."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.metrics_format import Family, Kind, Sample, Section, labels
from penstock.broker.metrics_scrape import Scrape


def _times(scrape: Scrape) -> Iterable[Sample]:
    return [(labels(quota=key), each.times) for key, each in scrape.broker.quotas.throttled.items()]


def _seconds(scrape: Scrape) -> Iterable[Sample]:
    return [(labels(quota=key), each.total_ms / 1000) for key, each in scrape.broker.quotas.throttled.items()]


def _held_now(scrape: Scrape) -> Iterable[Sample]:
    return [("", sum(connection.is_throttled for connection in scrape.metered.server.connections))]


# fmt: off
QUOTAS: Section[Scrape] = Section("Quotas", "By the name of the quota, as Kafka has it.", (
    Family("penstock_throttles_total", Kind.COUNTER, "How often a client was told to wait, and was not read from.",
           _times, ("quota",)),
    Family("penstock_throttle_seconds_total", Kind.COUNTER, "For how long clients were told to wait, all together.",
           _seconds, ("quota",)),
    Family("penstock_throttled_connections", Kind.GAUGE,
           "Connections that are not read from at the moment because a quota is used up.", _held_now),
))
# fmt: on
