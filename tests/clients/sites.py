"""The brokers on which scenarios of groups and transactions run: Penstock alone and as a cluster, and Apache Kafka as
the reference.

All get the same settings: short sessions and short intervals of what is done by the clock, so that nobody waits long.
What fails on Apache Kafka is a fault of the scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from penstock.testing.apache_kafka import ApacheKafka, find_jars
from penstock.testing.broker_process import BrokerProcess

from .cluster_site import cluster_site, stormy_site

PENSTOCK, KAFKA, CLUSTER = "penstock", "apache-kafka", "penstock-cluster"
#: A cluster whose brokers are killed in turn, all the time.
STORM = "penstock-cluster-in-a-storm"
#: Of groups whose sessions the broker decides about.
CONSUMER_SESSION_TIMEOUT_MS = 2_500
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(CONSUMER_SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
#: A quick stop, and a quick return after a kill.
KAFKA_SETTINGS = {
    "controlled.shutdown.enable": "false",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
}


class Site(Protocol):
    """A broker that can be killed and brought back on the same address and folder."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> object: ...
    def log_text(self) -> str: ...


StartSite = Callable[..., Site]


@contextmanager
def site(kind: str, folder: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[Site]:
    """One broker of that kind, or a cluster, started."""
    if kind == KAFKA:
        with ApacheKafka(find_jars(), folder, settings={**settings, **KAFKA_SETTINGS}) as kafka:
            yield kafka
    elif kind == PENSTOCK:
        with BrokerProcess(folder / "data", settings=settings) as penstock:
            yield penstock
    else:
        with (stormy_site if kind == STORM else cluster_site)(folder, settings) as cluster:
            yield cluster


@contextmanager
def sites(kind: str, folder: Path) -> Iterator[StartSite]:
    """A function that starts brokers of that kind, and ends them afterwards."""
    with ExitStack() as stack:
        numbers = count()

        def start(settings: Mapping[str, str] = SETTINGS) -> Site:
            return stack.enter_context(site(kind, folder / f"site-{next(numbers)}", settings))

        yield start
