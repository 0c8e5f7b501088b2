"""Brokers are killed, stopped and paused while clients write and read: nothing acknowledged is lost, nothing is there
twice, the order of each producer is kept, and all replicas end with the same bytes."""

from __future__ import annotations

import random
import time

import pytest

from penstock.testing.cluster_sight import wait_until

from .clusters import IDS, SESSION_TIMEOUT_MS, StormyCluster
from .storm import Storm

pytestmark = pytest.mark.cluster

#: Messages between two things that happen.
SOME = 300


def test_a_leader_is_killed(cluster: StormyCluster) -> None:
    """One that is not the controller."""
    with Storm(cluster) as storm:
        storm.work(SOME)
        victim = next(one for one in IDS if one != cluster.sight.controller())
        storm.befall("kill of a leader", lambda: cluster.kill(victim))
        storm.work(SOME)
        cluster.bring_back(victim)
        storm.work(SOME)
        storm.judge()


def test_the_controller_is_killed(cluster: StormyCluster) -> None:
    with Storm(cluster) as storm:
        storm.work(SOME)
        victim = cluster.sight.controller()
        storm.befall("kill of a leader that is the controller", lambda: cluster.kill(victim))
        storm.work(SOME)
        assert cluster.sight.controller() != victim
        cluster.bring_back(victim)
        storm.work(SOME)
        storm.judge()


def test_a_follower_is_killed(cluster: StormyCluster) -> None:
    """One that leads nothing and is not the controller, where there is one; and another that leads nothing."""
    with Storm(cluster, partitions=1) as storm:
        storm.work(SOME)
        followers = [one for one in IDS if one != storm.leader()]
        for victim in sorted(followers, key=lambda one: one == cluster.sight.controller()):
            storm.befall("kill of a follower", lambda victim=victim: cluster.kill(victim))
            storm.work(SOME)
            cluster.bring_back(victim)
            cluster.sight.wait_in_sync()
        storm.judge()


def test_a_rolling_restart(cluster: StormyCluster) -> None:
    with Storm(cluster) as storm:
        for broker_id in IDS:
            storm.work(SOME)
            storm.befall("stop in order", lambda broker_id=broker_id: cluster.stop(broker_id))
            cluster.bring_back(broker_id)
            cluster.sight.wait_in_sync()
        storm.judge()


def test_a_leader_is_paused_for_longer_than_its_session(cluster: StormyCluster) -> None:
    with Storm(cluster) as storm:
        storm.work(SOME)
        victim = storm.leader()
        storm.befall("pause of a leader", lambda: pause(cluster, victim))
        storm.work(SOME)
        cluster.resume(victim)
        cluster.sight.wait_in_sync()
        storm.work(SOME)
        storm.judge()


@pytest.mark.zookeeper
def test_all_of_that_on_zookeeper(on_zookeeper: StormyCluster) -> None:
    cluster = on_zookeeper
    with Storm(cluster) as storm:
        storm.work(SOME)
        leader = next(one for one in IDS if one != cluster.sight.controller())
        storm.befall("ZooKeeper: kill of a leader", lambda: cluster.kill(leader))
        cluster.bring_back(leader)
        cluster.sight.wait_in_sync()
        controller = cluster.sight.controller()
        storm.befall("ZooKeeper: kill of the controller", lambda: cluster.kill(controller))
        cluster.bring_back(controller)
        cluster.sight.wait_in_sync()
        storm.befall("ZooKeeper: pause of a leader", lambda: pause(cluster, leader))
        cluster.resume(leader)
        storm.work(SOME)
        storm.judge()


def pause(cluster: StormyCluster, victim: int) -> None:
    """Until the others have taken over: a client of a broker that stands still may wait longer than its session."""
    cluster.pause(victim)
    wait_until(
        lambda: victim not in cluster.sight.leaders("written-in-storms", avoid=[victim]).values(),
        lambda: f"broker {victim} leads on, while it stands still",
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("topic_settings", [{}, {"flush.mode": "always"}, {"segment.index.bytes": "40"}])
def test_many_things_happen(cluster: StormyCluster, seed: int, topic_settings: dict[str, str]) -> None:
    chance = random.Random(seed)
    with Storm(cluster, topic_settings=topic_settings) as storm:
        for _ in range(12):
            storm.work(chance.randrange(1, 2 * SOME))
            befall_something(storm, chance)
            if chance.random() < 0.7:
                cluster.sight.wait_in_sync()
        storm.judge()


def befall_something(storm: Storm, chance: random.Random) -> None:
    cluster = storm.cluster
    victim = chance.choice([*IDS, cluster.sight.controller(), storm.leader()])
    what = chance.choice(["kill", "kill twice", "stop", "pause", "pause shortly"])
    if what.startswith("pause"):
        cluster.pause(victim)
        time.sleep(chance.random() * SESSION_TIMEOUT_MS / 1000 * (0.5 if what == "pause shortly" else 2))
        cluster.resume(victim)
    elif what == "stop":
        cluster.stop(victim)
        cluster.bring_back(victim)
    else:
        for _ in range(2 if what == "kill twice" else 1):
            cluster.kill(victim)
            storm.work(chance.randrange(1, SOME))
            cluster.bring_back(victim)
    storm.befall(what, lambda: None)
