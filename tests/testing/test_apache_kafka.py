"""Apache Kafka as a process: started, stopped, killed, brought back; and what is said when it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing.apache_kafka import ApacheKafka, ApacheKafkaError, NoApacheKafka, find_jars, version_of


def test_a_folder_without_jars_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_KAFKA_LIBS", str(tmp_path))
    with pytest.raises(ApacheKafkaError, match="which has no Kafka jars"):
        find_jars()
    (tmp_path / "kafka-clients-1.2.3.jar").touch()
    (tmp_path / "kafka_2.13-1.2.3.jar").touch()
    assert find_jars() == tmp_path
    assert version_of(tmp_path) == "1.2.3"


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_KAFKA_LIBS", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoApacheKafka, match="there is no java"):
        find_jars()


@pytest.mark.kafka
@pytest.mark.slow
def test_start_kill_and_start_again(kafka_libs: Path, tmp_path: Path) -> None:
    with ApacheKafka(kafka_libs, tmp_path / "kafka", settings={"num.partitions": "1"}) as kafka:
        bootstrap = kafka.bootstrap
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("kept", b"value")
        assert producer.flush(30) == 0
        kafka.kill()
        assert not kafka.is_running
        kafka.start()
        assert kafka.bootstrap == bootstrap
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
        consumer.assign([TopicPartition("kept", 0, 0)])
        (message,) = consumer.consume(1, 30)
        assert message.value() == b"value"
        consumer.close()
    assert not kafka.is_running


@pytest.mark.kafka
@pytest.mark.slow
def test_settings_that_kafka_refuses(kafka_libs: Path, tmp_path: Path) -> None:
    kafka = ApacheKafka(kafka_libs, tmp_path / "kafka", settings={"num.partitions": "none"})
    with pytest.raises(ApacheKafkaError, match=r"num\.partitions"):
        kafka.start()
