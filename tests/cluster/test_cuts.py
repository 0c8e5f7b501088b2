"""Brokers are cut off from each other and from the keeper while clients write and read. Clients reach all of them, so
whoever believes wrongly that it still leads would be believed.

A cut is silent, as in a network: connections stay, and nothing comes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.cluster_sight import wait_until
from penstock.testing.zookeeper_processes import ApacheZooKeeper

from .broker_links import KEEPER, BrokerLinks
from .clusters import IDS, StormyCluster, machines_cluster
from .conftest import check_for_zookeeper
from .storm import TOPIC, Storm

pytestmark = pytest.mark.cluster

SOME = 300


@pytest.fixture
def links() -> Iterator[BrokerLinks]:
    with BrokerLinks() as links:
        yield links


@pytest.fixture(params=["keeper", pytest.param("zookeeper", marks=[pytest.mark.zookeeper, pytest.mark.slow])])
def cluster(request: pytest.FixtureRequest, links: BrokerLinks, tmp_path: Path) -> Iterator[StormyCluster]:
    """Three `penstock broker` whose wires can be cut, with a `penstock keeper` or with Apache ZooKeeper."""
    if request.param == "keeper":
        with machines_cluster(tmp_path, links=links) as started:
            yield started
        return
    check_for_zookeeper()
    with (
        ApacheZooKeeper(tmp_path / "zookeeper") as server,
        machines_cluster(tmp_path, zookeeper=server.address, links=links) as started,
    ):
        yield started


def wait_until_others_lead(cluster: StormyCluster, victim: int) -> None:
    wait_until(
        lambda: victim not in cluster.sight.leaders(TOPIC, avoid=[victim]).values(),
        lambda: f"broker {victim} leads on although it is cut off",
    )


def test_a_leader_cut_off_from_the_keeper(cluster: StormyCluster, links: BrokerLinks) -> None:
    """Its session ends, others lead; it may not acknowledge what they do not know, and comes back by itself."""
    with Storm(cluster) as storm:
        storm.work(SOME)
        victim = storm.leader()

        def cut() -> None:
            links.cut(victim, KEEPER)
            wait_until_others_lead(cluster, victim)

        storm.befall("leader cut off from the keeper", cut)
        storm.work(SOME)
        storm.note_silence("leader cut off from the keeper")
        storm.befall("healed", links.heal)
        cluster.sight.wait_in_sync()
        storm.judge()


def test_a_leader_cut_off_from_everybody_but_clients(cluster: StormyCluster, links: BrokerLinks) -> None:
    with Storm(cluster) as storm:
        storm.work(SOME)
        victim = storm.leader()

        def cut() -> None:
            links.cut_off(victim, [KEEPER, *(one for one in IDS if one != victim)])
            wait_until_others_lead(cluster, victim)

        storm.befall("leader cut off from everybody", cut)
        storm.work(SOME)
        storm.befall("healed", links.heal)
        cluster.sight.wait_in_sync()
        storm.judge()


def test_a_leader_cut_off_from_its_followers(cluster: StormyCluster, links: BrokerLinks) -> None:
    """It has its session and leads on, but nothing it takes is committed before the wires are healed."""
    with Storm(cluster) as storm:
        storm.work(SOME)
        victim = storm.leader()
        links.cut_off(victim, [one for one in IDS if one != victim])
        wait_until(lambda: bool(cluster.sight.out_of_sync()), lambda: "the followers stay in sync")
        storm.befall("healed", links.heal)
        cluster.sight.wait_in_sync()
        storm.judge()


def test_everybody_cut_off_from_the_keeper(cluster: StormyCluster, links: BrokerLinks) -> None:
    """For longer than the sessions: whoever is followed by all goes on, and nobody else."""
    with Storm(cluster) as storm:
        storm.work(SOME)
        for broker_id in IDS:
            links.cut(broker_id, KEEPER)
        storm.work(20 * SOME)
        storm.note_silence("everybody cut off from the keeper")
        storm.befall("healed", links.heal)
        cluster.sight.wait_in_sync()
        storm.judge()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_many_cuts(cluster: StormyCluster, links: BrokerLinks, seed: int) -> None:
    """Any wires at once, for any time, and a kill now and then."""
    chance = random.Random(seed)
    wires = [(one, other) for one in IDS for other in (KEEPER, *IDS) if other < one]
    with Storm(cluster) as storm:
        for _ in range(10):
            storm.work(chance.randrange(1, SOME))
            for one, other in chance.sample(wires, chance.randint(1, len(wires) - 1)):
                links.cut(one, other)
            time.sleep(chance.random() * 8)
            victim = chance.choice(IDS) if chance.random() < 0.3 else None
            if victim is not None:
                cluster.kill(victim)
            links.heal()
            if victim is not None:
                cluster.bring_back(victim)
            storm.befall("many cuts, healed", lambda: None, is_for_all=True)
        cluster.sight.wait_in_sync()
        storm.judge()
