"""Several nodes of Apache Kafka: one cluster that goes on without one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.testing.apache_kafka_cluster import ApacheKafkaCluster
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k03_metadata import MetadataRequest


@pytest.mark.kafka
@pytest.mark.slow
def test_three_nodes_of_which_one_is_killed(kafka_libs: Path, tmp_path: Path) -> None:
    settings = {"default.replication.factor": "3"}
    with ApacheKafkaCluster(kafka_libs, tmp_path, 3, racks={1: "a", 2: "b"}, settings=settings) as kafka:
        with RawClient(kafka[1].host, kafka[1].port) as client:
            brokers = client.call(MetadataRequest(topics=[]), 1).brokers
        assert sorted((broker.node_id, broker.rack) for broker in brokers) == [(1, "a"), (2, "b"), (3, None)]
        kafka[2].kill()
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce("kept", b"value")
        assert producer.flush(60) == 0
        kafka[2].start()
        assert kafka[2].serves([1, 3])
    assert not any(node.is_running for node in kafka)
