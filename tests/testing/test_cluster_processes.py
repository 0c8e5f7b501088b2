"""Clusters of real broker processes: with a keeper of their own, and on Apache ZooKeeper alone and as an ensemble."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.broker_process import BrokerProcessError
from penstock.testing.cluster_processes import ClusterProcesses, is_alive, members, wait_for_members
from penstock.testing.zookeeper_processes import NoApacheZooKeeper, require_zookeeper, zookeeper_ensemble

pytestmark = pytest.mark.cluster

DEADLINE_S = 60.0
#: Far longer than any test waits, where none of them is to expire.
LONG_SESSION = {"zookeeper.session.timeout.ms": "60000", "offsets.topic.num.partitions": "3"}
SHORT_SESSION = {"zookeeper.session.timeout.ms": "1500", "offsets.topic.num.partitions": "3"}


class Orders:
    """A topic with three replicas, and numbers in it."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.bootstrap = cluster.bootstrap
        self.count = 0
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(DEADLINE_S)

    def write(self, count: int = 30) -> None:
        """Every one of them acknowledged."""
        failed: list[Any] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        for number in range(self.count, self.count + count):
            producer.produce(
                "orders",
                str(number),
                partition=number % 3,
                on_delivery=lambda error, _message: failed.append(error) if error else None,
            )
        assert producer.flush(DEADLINE_S) == 0
        assert not failed
        self.count += count

    def check(self) -> None:
        """Everything that was written is there, once."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "nobody", "log_level": 0})
        consumer.assign([TopicPartition("orders", partition, 0) for partition in range(3)])
        found: list[int] = []
        deadline_s = time.monotonic() + DEADLINE_S
        while len(found) < self.count and time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(int(message.value() or b"-1"))
        consumer.close()
        assert sorted(found) == list(range(self.count))


@contextmanager
def running(path: Path, zookeeper: str | None, settings: dict[str, str]) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(3, path / "cluster", zookeeper=zookeeper, settings=settings) as cluster:
        yield cluster


def _take_turns_dying(cluster: ClusterProcesses) -> None:
    orders = Orders(cluster)
    orders.write()
    for victim in cluster.brokers:
        pid, watcher = cluster.pid(victim), cluster[victim].watcher_pid
        cluster.kill(victim)
        assert not is_alive(pid) and not is_alive(watcher)
        others = [broker for broker in cluster if broker.broker_id != victim]
        wait_for_members([broker.bootstrap for broker in others], {broker.broker_id for broker in others})
        orders.write()
        cluster.restart(victim)
        cluster.wait_ready()
        orders.write()
    orders.check()


def test_brokers_die_in_turn_with_a_keeper(tmp_path: Path) -> None:
    with running(tmp_path, None, LONG_SESSION) as cluster:
        _take_turns_dying(cluster)


@pytest.mark.zookeeper
def test_brokers_die_in_turn_on_an_ensemble_of_zookeeper(tmp_path: Path) -> None:
    try:
        require_zookeeper()
    except NoApacheZooKeeper as missing:
        pytest.skip(f"NOT TESTED AGAINST APACHE ZOOKEEPER: {missing}")
    with zookeeper_ensemble(tmp_path / "zookeeper") as servers:
        address = ",".join(server.address for server in servers) + "/penstock"
        with running(tmp_path, address, LONG_SESSION) as cluster:
            _take_turns_dying(cluster)


def test_brokers_stop_and_start_in_turn(tmp_path: Path) -> None:
    with running(tmp_path, None, LONG_SESSION) as cluster:
        orders = Orders(cluster)
        for broker_id in cluster.brokers:
            cluster.stop(broker_id)
            assert not cluster[broker_id].is_running
            orders.write()
            cluster.restart(broker_id)
            cluster.wait_ready()
        orders.check()


def test_a_paused_broker_is_missed_by_the_timeout_and_comes_back(tmp_path: Path) -> None:
    with running(tmp_path, None, SHORT_SESSION) as cluster:
        orders = Orders(cluster)
        orders.write()
        cluster.pause(1)
        wait_for_members([cluster[0].bootstrap, cluster[2].bootstrap], {0, 2})
        orders.write()
        cluster.resume(1)
        cluster.wait_ready()
        orders.write()
        orders.check()


def test_a_cluster_without_its_keeper_for_a_moment(tmp_path: Path) -> None:
    with running(tmp_path, None, LONG_SESSION) as cluster:
        orders = Orders(cluster)
        orders.write()
        assert cluster.keeper is not None
        cluster.keeper.kill()
        orders.write()
        cluster.keeper.start()
        orders.write()
        orders.check()
        assert members(cluster[0].bootstrap) == {0, 1, 2}


def test_a_broker_that_was_never_started_says_so(tmp_path: Path) -> None:
    cluster = ClusterProcesses(1, tmp_path / "cluster", zookeeper="127.0.0.1:1")
    with pytest.raises(BrokerProcessError, match="the broker is not running"):
        cluster.pid(0)
    cluster.close()
