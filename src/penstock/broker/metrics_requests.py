"""Metrics of requests and connections."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.errors import Error
from penstock.broker.metrics_format import Family, Kind, Sample, Section, histogram, labels
from penstock.broker.metrics_scrape import Scrape
from penstock.broker.request_counts import BOUNDS_S
from penstock.wire.messages.k00_produce import API as PRODUCE


def _requests(scrape: Scrape) -> Iterable[Sample]:
    dispatcher = scrape.metered.dispatcher
    for counts in dispatcher.counts:
        again = dispatcher.again_count if counts.name == PRODUCE.name else 0
        if counts.received + again:
            yield labels(api=counts.name), counts.received + again


def _times(scrape: Scrape) -> Iterable[Sample]:
    for counts in scrape.metered.dispatcher.counts:
        if any(counts.times):
            yield from histogram(labels(api=counts.name), BOUNDS_S, list(counts.times), counts.sum_s)


def _errors(scrape: Scrape) -> Iterable[Sample]:
    for counts in scrape.metered.dispatcher.counts:
        for code, count in sorted(counts.errors.items()):
            yield labels(api=counts.name, error=Error(code).name), count


def _refused(scrape: Scrape) -> Iterable[Sample]:
    refused = scrape.metered.server.refused
    return [(labels(reason=reason), refused[reason]) for reason in ("max.connections", "max.connections.per.ip")]


# fmt: off
REQUESTS: Section[Scrape] = Section("Requests", "By the name of their API, as Kafka has it.", (
    Family("penstock_requests_total", Kind.COUNTER, "Requests received.", _requests, ("api",)),
    Family("penstock_request_seconds", Kind.HISTOGRAM,
           "Time from a whole request to its answer being ready to be sent, with everything it waited for: a fetch "
           "for news, a produce with acks=all for replicas. Of produces that repeat the one before them one in 64 "
           "is timed, and counts as 64.", _times, ("api",)),
    Family("penstock_request_errors_total", Kind.COUNTER,
           "Errors in answers; an answer about many partitions has one for each that failed.",
           _errors, ("api", "error")),
))

CONNECTIONS: Section[Scrape] = Section("Connections", "By the name of the listener, where it matters.", (
    Family("penstock_connections", Kind.GAUGE, "Connections that are open.",
           lambda scrape: [(labels(listener=name), each.connections) for name, each in scrape.traffic.items()],
           ("listener",)),
    Family("penstock_connections_accepted_total", Kind.COUNTER, "Connections that were accepted.",
           lambda scrape: [(labels(listener=name), each.accepted) for name, each in scrape.traffic.items()],
           ("listener",)),
    Family("penstock_connections_refused_total", Kind.COUNTER,
           "Connections that were closed at once, by the setting that was the reason.", _refused, ("reason",)),
    Family("penstock_connections_broken_total", Kind.COUNTER,
           "Connections that were closed because the peer broke the protocol, or did not go on in time.",
           lambda scrape: [("", scrape.metered.server.broken)]),
    Family("penstock_received_bytes_total", Kind.COUNTER, "Bytes received from clients and other brokers.",
           lambda scrape: [(labels(listener=name), each.received_bytes) for name, each in scrape.traffic.items()],
           ("listener",)),
    Family("penstock_sent_bytes_total", Kind.COUNTER, "Bytes sent to clients and other brokers.",
           lambda scrape: [(labels(listener=name), each.sent_bytes) for name, each in scrape.traffic.items()],
           ("listener",)),
    Family("penstock_request_memory_bytes", Kind.GAUGE,
           "Memory of requests that have not arrived whole or are not done with; limited by queued.max.request.bytes.",
           lambda scrape: [("", scrape.metered.server.request_bytes)]),
))
# fmt: on
