"""Metrics of this broker as a member of its cluster, of its session, and of the cluster as the controller sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock import __version__
from penstock.broker.metrics_format import Family, Kind, Number, Sample, Section, labels
from penstock.broker.metrics_scrape import ClusterTotals, Scrape
from penstock.broker.session_counts import SessionCounts


def _info(scrape: Scrape) -> Iterable[Sample]:
    broker = scrape.broker
    tags = labels(
        node_id=broker.node_id,
        cluster_id=broker.view.cluster_id,
        rack=broker.settings.optional_text("broker.rack") or "",
        version=__version__,
    )
    return [(tags, 1)]


def _session(read: Callable[[SessionCounts], Number]) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: [("", read(scrape.metered.session))]


def _cluster(read: Callable[[ClusterTotals], Number]) -> Callable[[Scrape], Iterable[Sample]]:
    """From the controller alone."""
    return lambda scrape: [] if scrape.cluster is None else [("", read(scrape.cluster))]


def _members(scrape: Scrape) -> Iterable[Sample]:
    return [] if scrape.cluster is None else [("", len(scrape.broker.view.brokers))]


# fmt: off
MEMBER: Section[Scrape] = Section("This broker and its session", """\
The session is the one with ZooKeeper, or with the embedded keeper; when it ends, the broker counts as dead.""", (
    Family("penstock_broker_info", Kind.GAUGE, "1, with who this broker is.", _info,
           ("node_id", "cluster_id", "rack", "version")),
    Family("penstock_broker_admitted", Kind.GAUGE,
           "1 while the controller counts this broker in: it may lead and be in sync.",
           lambda scrape: [("", scrape.broker.membership.is_admitted)]),
    Family("penstock_session_connected", Kind.GAUGE, "1 while the session is in touch with its service.",
           _session(lambda session: session.is_connected)),
    Family("penstock_session_silence_seconds", Kind.GAUGE,
           "Time since the service has surely heard of this broker; 0 with the keeper in the same process.",
           _session(lambda session: session.silence_s)),
    Family("penstock_session_timeout_seconds", Kind.GAUGE, "After so much silence the session ends.",
           _session(lambda session: session.timeout_s)),
    Family("penstock_session_expirations_total", Kind.COUNTER, "Sessions that ended because of silence.",
           _session(lambda session: session.expirations)),
))

CLUSTER: Section[Scrape] = Section("Controller", """\
What is said of the cluster comes only from the broker that is the controller.""", (
    Family("penstock_controller_active", Kind.GAUGE, "1 on the controller, 0 elsewhere: the sum over a cluster is 1.",
           lambda scrape: [("", scrape.broker.role.is_controller)]),
    Family("penstock_controller_epoch", Kind.GAUGE, "The epoch of the controller; it grows when another takes over.",
           lambda scrape: [("", scrape.broker.role.epoch)] if scrape.cluster is not None else []),
    Family("penstock_controller_unclean_elections_total", Kind.COUNTER,
           "Partitions that this broker, as the controller, has given a leader that may lack acknowledged records.",
           lambda scrape: [("", scrape.broker.role.unclean_elections)]),
    Family("penstock_cluster_brokers", Kind.GAUGE, "Brokers that are registered.", _members),
    Family("penstock_cluster_partitions", Kind.GAUGE, "Partitions of all topics.",
           _cluster(lambda cluster: cluster.partitions)),
    Family("penstock_cluster_offline_partitions", Kind.GAUGE, "Partitions without a leader: nobody can use them.",
           _cluster(lambda cluster: cluster.offline)),
    Family("penstock_cluster_under_replicated_partitions", Kind.GAUGE, "Partitions of which a replica is not in sync.",
           _cluster(lambda cluster: cluster.under_replicated)),
    Family("penstock_cluster_partitions_not_led_by_preferred", Kind.GAUGE,
           "Partitions whose leader is not the first of their replicas.",
           _cluster(lambda cluster: cluster.not_preferred)),
))
# fmt: on
