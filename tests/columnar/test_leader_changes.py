"""Reading while leaders come and go: nothing lost, nothing doubled, and no waiting beyond the deadline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.base.identifiers import TopicPartition
from penstock.columnar.cluster import GROUP, Cluster
from penstock.columnar.decode import ColumnChoice
from penstock.columnar.fetch import RangeReader
from penstock.columnar.groups import commit_offsets
from penstock.columnar.offsets import LATEST, offsets_at
from penstock.testing.cluster_processes import ClusterProcesses

from .producing_sites import DEADLINE_S, cluster_at, wait_until
from .topic_filling import fill, numbers

pytestmark = pytest.mark.cluster

ROWS = 6000
TOPIC = "orders"


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(3, tmp_path_factory.mktemp("cluster")) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(DEADLINE_S)
        for partition in range(3):
            fill(brokers.bootstrap, TOPIC, numbers(0, ROWS), partition=partition, batch_size=2000, acks="all")
        yield brokers


@pytest.fixture
def brokers(three_brokers: ClusterProcesses) -> Iterator[ClusterProcesses]:
    """All of them, whatever the test before has done."""
    for broker in three_brokers:
        if not broker.is_running:
            broker.start()
    yield three_brokers.wait_ready()


def leader_of(brokers: ClusterProcesses, cluster: Cluster, where: TopicPartition) -> int:
    address = cluster.leader(where).address
    return next(broker.broker_id for broker in brokers if broker.port == address.port)


def test_reading_goes_on_after_leaders_die_and_stop(brokers: ClusterProcesses) -> None:
    with cluster_at(brokers.bootstrap, fetch_max_wait_ms="100") as cluster:
        for partition, end_it in ((0, brokers.kill), (1, brokers.stop)):
            where = TopicPartition(TOPIC, partition)
            reader = RangeReader(
                cluster, where, 0, ROWS, ColumnChoice(), committed=True, rows_max=500, fetch_bytes=8000
            )
            found = []
            ended = None
            for batch in reader:
                found += batch.column("value").to_pylist()
                if ended is None and len(found) >= ROWS // 3:
                    ended = leader_of(brokers, cluster, where)
                    end_it(ended)
            assert ended is not None
            assert found == numbers(0, ROWS)
            brokers[ended].start()
            brokers.wait_ready()


def test_everything_else_follows_too(brokers: ClusterProcesses) -> None:
    """Offsets are looked up, and committed, also after their leaders and the coordinator have died."""
    places = [TopicPartition(TOPIC, partition) for partition in range(3)]
    with cluster_at(brokers.bootstrap) as cluster:
        assert offsets_at(cluster, places, LATEST, committed=True) == dict.fromkeys(places, ROWS)
        commit_offsets(cluster, "group", dict.fromkeys(places, 1))
        port = cluster.coordinator("group", GROUP).address.port
        brokers.kill(next(broker.broker_id for broker in brokers if broker.port == port))
        assert offsets_at(cluster, places, LATEST, committed=True) == dict.fromkeys(places, ROWS)
        commit_offsets(cluster, "group", dict.fromkeys(places, 2))
        assert cluster.topics([TOPIC])[TOPIC].partitions == 3


def test_a_leader_that_stands_still_is_left(brokers: ClusterProcesses) -> None:
    """Paused, it keeps its connections and answers nothing, until its session is over and another one leads."""
    where = TopicPartition(TOPIC, 2)
    with cluster_at(brokers.bootstrap, request_timeout_ms="2000", fetch_max_wait_ms="100") as cluster:
        leader = leader_of(brokers, cluster, where)
        reading = iter(
            RangeReader(cluster, where, 0, ROWS, ColumnChoice(), committed=True, rows_max=500, fetch_bytes=8000)
        )
        found = next(reading).column("value").to_pylist()
        brokers.pause(leader)
        try:
            for batch in reading:
                found += batch.column("value").to_pylist()
            assert found == numbers(0, ROWS)
            wait_until(lambda: leader_of(brokers, cluster, where) != leader, "another leader")
        finally:
            brokers.resume(leader)
