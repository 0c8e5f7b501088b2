"""Answers that never come, connections that are cut, brokers that are killed in the middle: each row is there once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from penstock.columnar import commit_many
from penstock.columnar.cluster import Cluster
from penstock.columnar.commit_many import PreparedTransaction
from penstock.columnar.errors import BrokerAway, Refused
from penstock.columnar.produce import BulkProducer
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.cluster_processes import ClusterProcesses

from .producing_sites import SETTINGS, ProducingSite, Proxied, numbered, texts, wait_until

COUNT = 1_000


@pytest.mark.clients
def test_an_acknowledgement_that_was_lost(proxied: Proxied) -> None:
    topic = proxied.new_topic()
    with proxied.cluster() as cluster, BulkProducer(cluster) as producer:
        for first in range(0, 3 * COUNT, COUNT):
            before_bytes = proxied.log_bytes(topic)
            producer.write(topic, numbered(first, COUNT))
            proxied.while_answers_are_lost(
                producer.flush, until=lambda before=before_bytes: proxied.log_bytes(topic) > before
            )
    assert proxied.values(topic) == texts(range(3 * COUNT))


@pytest.mark.clients
def test_several_acknowledgements_that_were_lost(proxied: Proxied) -> None:
    """Five requests in flight, of which nobody knows what has become."""
    topic = proxied.new_topic()
    with proxied.cluster() as cluster, BulkProducer(cluster, batch_bytes=500, compression="none") as producer:
        producer.write(topic, numbered(0, COUNT))
        producer.flush()
        before_bytes = proxied.log_bytes(topic)
        producer.write(topic, numbered(COUNT, COUNT))
        proxied.while_answers_are_lost(producer.flush, until=lambda: proxied.log_bytes(topic) > before_bytes + 2_000)
    assert proxied.values(topic) == texts(range(2 * COUNT))


@pytest.mark.clients
def test_a_commit_whose_answer_was_lost(proxied: Proxied) -> None:
    topic = proxied.new_topic()
    with proxied.cluster() as cluster, BulkProducer(cluster, transactional_id="lost") as producer:
        for first in (0, 10):
            producer.begin()
            producer.write(topic, numbered(first, 10))
            producer.flush()
            before_bytes = proxied.log_bytes(topic)
            proxied.while_answers_are_lost(
                producer.commit, until=lambda before=before_bytes: proxied.log_bytes(topic) > before
            )
    wait_until(lambda: proxied.values(topic) == texts(range(20)), "both transactions")


@pytest.mark.clients
def test_a_commit_of_which_nothing_is_known_is_not_called_aborted(proxied: Proxied) -> None:
    topic = proxied.new_topic()
    settings = {"request_timeout_ms": "300", "default_api_timeout_ms": "500"}
    with proxied.cluster(**settings) as cluster, BulkProducer(cluster, transactional_id="in-doubt") as producer:
        producer.begin()
        producer.write(topic, numbered(0, 10))
        producer.flush()
        with proxied.swallowed_answers(), pytest.raises(BrokerAway, match="in-doubt"):
            producer.commit()
        with pytest.raises(Refused, match="may have been done"):
            producer.abort()
    wait_until(lambda: proxied.values(topic) == texts(range(10)), "the rows")


@pytest.mark.clients
def test_cut_again_and_again(proxied: Proxied) -> None:
    topic = proxied.new_topic(partitions=3)
    enough = Event()

    def cut_often() -> None:
        while not enough.wait(0.02):
            proxied.cut()

    with (
        ThreadPoolExecutor(1) as threads,
        proxied.cluster(retry_backoff_ms="1") as cluster,
        BulkProducer(cluster, batch_bytes=1_000, unacknowledged_bytes_max=50_000) as producer,
    ):
        cutting = threads.submit(cut_often)
        try:
            for first in range(0, 100 * COUNT, COUNT):
                producer.write(topic, numbered(first, COUNT))
            producer.flush()
        finally:
            enough.set()
        cutting.result()
    assert_once(proxied, topic, 100 * COUNT)


@pytest.mark.clients
def test_a_broker_is_killed_and_comes_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker, ThreadPoolExecutor(1) as threads:
        site = ProducingSite(broker.bootstrap)
        topic = site.new_topic(partitions=3)
        with site.cluster() as cluster, BulkProducer(cluster, batch_bytes=5_000) as producer:
            restarting = None
            for first in range(0, 50 * COUNT, COUNT):
                producer.write(topic, numbered(first, COUNT))
                if first in (10 * COUNT, 30 * COUNT):
                    broker.kill()
                    restarting = threads.submit(broker.start)
            producer.flush()
            assert restarting is not None
            restarting.result()
        assert_once(site, topic, 50 * COUNT)


@pytest.mark.clients
def test_a_broker_that_stays_away_is_named(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        site = ProducingSite(broker.bootstrap)
        topic = site.new_topic()
        with site.cluster(delivery_timeout_ms="500") as cluster, BulkProducer(cluster) as producer:
            producer.write(topic, numbered(0, 1))
            broker.kill()
            with pytest.raises(BrokerAway, match=rf"{topic}.*within 0.5 s"):
                producer.flush()


@pytest.mark.clients
def test_a_broker_that_hangs_is_given_up(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        site = ProducingSite(broker.bootstrap)
        topic = site.new_topic()
        with site.cluster(delivery_timeout_ms="1000", request_timeout_ms="300") as cluster:
            producer = BulkProducer(cluster)
            producer.write(topic, numbered(0, 1))
            broker.pause()
            with pytest.raises(BrokerAway, match=topic):
                producer.flush()
            broker.resume()


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(3, tmp_path_factory.mktemp("three") / "cluster", settings=SETTINGS) as cluster:
        yield cluster


@pytest.mark.cluster
@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_leader_of_three_is_killed(three_brokers: ClusterProcesses, is_transactional: bool) -> None:
    site = ProducingSite(three_brokers.bootstrap)
    topic = site.new_topic(partitions=6)
    transactional_id = "of-three" if is_transactional else None
    with (
        site.cluster() as cluster,
        BulkProducer(cluster, batch_bytes=5_000, transactional_id=transactional_id) as producer,
        ThreadPoolExecutor(1) as threads,
    ):
        for number in range(6):
            if is_transactional:
                producer.begin()
            victim = number % 3
            for first in range(number * 10 * COUNT, (number + 1) * 10 * COUNT, COUNT):
                producer.write(topic, numbered(first, COUNT))
                if first % (10 * COUNT) == 5 * COUNT:
                    three_brokers.kill(victim)
                    coming_back = threads.submit(three_brokers[victim].start)
            if is_transactional:
                producer.commit()
            else:
                producer.flush()
            coming_back.result()
    three_brokers.wait_ready()
    wait_until(lambda: len(site.values(topic)) >= 60 * COUNT, "all rows")
    assert_once(site, topic, 60 * COUNT)


@pytest.mark.cluster
def test_a_leader_of_three_hangs(three_brokers: ClusterProcesses) -> None:
    """Nobody closes its connections; what it was asked is asked again of its successor, and it still has it."""
    site = ProducingSite(three_brokers.bootstrap)
    topic = site.new_topic(partitions=6)
    with (
        site.cluster(request_timeout_ms="1000") as cluster,
        BulkProducer(cluster, batch_bytes=5_000) as producer,
    ):
        for first in range(0, 10 * COUNT, COUNT):
            producer.write(topic, numbered(first, COUNT))
        producer.flush()
        three_brokers.pause(1)
        try:
            for first in range(10 * COUNT, 20 * COUNT, COUNT):
                producer.write(topic, numbered(first, COUNT))
            producer.flush()
        finally:
            three_brokers.resume(1)
        producer.write(topic, numbered(20 * COUNT, COUNT))
        producer.flush()
    three_brokers.wait_ready()
    assert_once(site, topic, 21 * COUNT)


@pytest.mark.cluster
def test_batches_are_committed_while_brokers_of_three_are_killed(three_brokers: ClusterProcesses) -> None:
    """A broker dies while the tasks write, or before they prepare, or before the commit."""
    site = ProducingSite(three_brokers.bootstrap)
    topic = site.new_topic(partitions=3)
    with site.cluster() as cluster, ThreadPoolExecutor(1) as threads:
        for number in range(6):
            moments = iter(range(3))
            coming_back = None
            prepared = []
            for task in range(2):
                if next(moments) == number % 3:
                    three_brokers.kill(number % 3)
                    coming_back = threads.submit(three_brokers[number % 3].start)
                prepared.append(write_and_prepare(cluster, topic, number, task))
            if next(moments) == number % 3:
                three_brokers.kill(number % 3)
                coming_back = threads.submit(three_brokers[number % 3].start)
            commit_many.commit(cluster, "of-three", number, prepared)
            assert coming_back is not None
            coming_back.result()
    three_brokers.wait_ready()
    wait_until(lambda: len(site.values(topic)) >= 12 * COUNT, "all rows")
    assert_once(site, topic, 12 * COUNT)


def write_and_prepare(cluster: Cluster, topic: str, number: int, task: int) -> PreparedTransaction:
    transactional_id = commit_many.transactional_id("of-three", str(task))
    with BulkProducer(cluster, transactional_id=transactional_id, batch_bytes=2_000) as producer:
        producer.begin()
        producer.write(topic, numbered((2 * number + task) * COUNT, COUNT))
        producer.flush()
        written = PreparedTransaction(transactional_id, *producer.producer)
    commit_many.prepare(cluster, "of-three", number, 1, [written])
    return written


def assert_once(site: ProducingSite, topic: str, count: int) -> None:
    """Each row is there once, and in every partition they are in order."""
    rows = site.read(topic)
    assert sorted(int(row.value or b"-1") for row in rows) == list(range(count))
    for partition in {row.partition for row in rows}:
        numbers = [int(row.value or b"-1") for row in rows if row.partition == partition]
        assert numbers == sorted(numbers)
