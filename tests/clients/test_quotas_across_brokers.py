"""A quota that is set at one broker counts at every broker, for every client library, and does not slow followers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.main import run
from penstock.testing.cluster_processes import ClusterProcesses

pytestmark = [pytest.mark.cluster, pytest.mark.clients]

DEADLINE_S = 60
RECORD = bytes(10_000)
RECORDS = 12
RATE = 20_000  # bytes a second, with two windows of a second
TOPIC = "limited"
SETTINGS = {"quota.window.num": "2", "default.replication.factor": "2", "min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(2, tmp_path_factory.mktemp("quotas") / "cluster", settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, 2, 2)]).values():
            made.result(DEADLINE_S)
        yield cluster


def quota(cluster: ClusterProcesses, broker: int, *arguments: str) -> None:
    assert run(["quota", *arguments, "--bootstrap", cluster[broker].bootstrap]) == 0


def confluent(bootstrap: str, client_id: str, partition: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id, "batch.num.messages": 1})
    for _ in range(RECORDS):
        producer.produce(TOPIC, RECORD, partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def kafka_python(bootstrap: str, client_id: str, partition: int) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, batch_size=0)
    for sent in [producer.send(TOPIC, RECORD, partition=partition) for _ in range(RECORDS)]:
        sent.get(DEADLINE_S)
    producer.close()


def with_aiokafka(bootstrap: str, client_id: str, partition: int) -> None:
    async def produce() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=client_id)
        await producer.start()
        try:
            for _ in range(RECORDS):
                await producer.send_and_wait(TOPIC, RECORD, partition=partition)
        finally:
            await producer.stop()

    asyncio.run(produce())


CLIENTS: dict[str, Callable[[str, str, int], None]] = {
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": with_aiokafka,
}


@pytest.mark.parametrize("name", CLIENTS)
def test_producers_are_held_by_both_brokers(cluster: ClusterProcesses, name: str) -> None:
    client_id = f"noisy-{name}"
    quota(cluster, 0, "set", "--client-id", client_id, "--produce", str(RATE))
    for partition in range(2):  # one is led by each broker
        began_s = time.monotonic()
        CLIENTS[name](cluster.bootstrap, client_id, partition)
        # what is more than both windows take comes at the rate of the quota
        assert time.monotonic() - began_s >= (RECORDS * len(RECORD) - 3 * RATE) / RATE
    quota(cluster, 1, "remove", "--client-id", client_id)


def test_a_consumer_is_held(cluster: ClusterProcesses) -> None:
    quota(cluster, 1, "set", "--client-id", "thirsty", "--consume", str(RATE))
    confluent(cluster.bootstrap, "writer", 0)
    settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "client_id": "thirsty"}
    consumer = kafka.KafkaConsumer(**settings, auto_offset_reset="earliest", group_id=None)
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    began_s, got = time.monotonic(), 0
    while got < RECORDS:
        assert time.monotonic() - began_s < DEADLINE_S
        got += sum(len(rows) for rows in consumer.poll(1000).values())
    consumer.close()
    assert time.monotonic() - began_s >= (RECORDS * len(RECORD) - 3 * RATE) / RATE
    quota(cluster, 0, "remove", "--client-id", "thirsty")


def test_followers_are_not_held(cluster: ClusterProcesses) -> None:
    """With next to nothing allowed to anybody, what is written is still copied at once."""
    quota(cluster, 0, "set", "--default-user", "--consume", "1", "--request-percent", "1")
    try:
        confluent(cluster.bootstrap, "writer", 1)  # acknowledged by all: the follower has fetched it
    finally:
        quota(cluster, 0, "remove", "--default-user")
