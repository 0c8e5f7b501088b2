"""Clusters as a look at them would find them, for tests of what is made of it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cli.cluster import BrokerAddress
from penstock.cli.cluster_survey import Broker, Partition, Survey
from penstock.cli.places import Place
from penstock.cli.reassignments import Reassignment


def broker(broker_id: int, *, rack: str | None = None, away: bool = False, silence: str | None = None) -> Broker:
    address = None if away else BrokerAddress(broker_id, f"host-{broker_id}", 9092)
    return Broker(broker_id, address, rack, silence)


def partition(replicas: str, isr: str | None = None, leader: int | None = -1) -> Partition:
    """`partition("123", "12")`: who holds it, who is in sync; the first in sync leads unless told otherwise."""
    in_sync = tuple(map(int, replicas if isr is None else isr))
    return Partition(in_sync[0] if leader == -1 else leader, tuple(map(int, replicas)), in_sync)


def survey(
    partitions: Mapping[Place, Partition],
    *brokers: Broker,
    min_isr: int = 1,
    moves: Mapping[Place, Reassignment] | None = None,
) -> Survey:
    """A cluster of these brokers, or of 1, 2 and 3."""
    there = brokers or tuple(broker(broker_id) for broker_id in (1, 2, 3))
    return Survey(
        cluster_id="c",
        controller_id=1,
        brokers={each.id: each for each in there},
        partitions=dict(partitions),
        min_isr={topic: min_isr for topic, _ in partitions},
        reassignments=dict(moves or {}),
    )


def move(replicas: str, adding: str, removing: str = "") -> Reassignment:
    return Reassignment(tuple(map(int, replicas)), tuple(map(int, adding)), tuple(map(int, removing)))
