"""Topics made and removed over the wire, the same way for every broker."""

from __future__ import annotations

import base64
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from uuid import UUID

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.load import MeasurementFailed

TIMEOUT_S = 90
# Apache Kafka keeps the files of a deleted topic for a minute; here their memory is wanted back at once.
SETTINGS = {"file.delete.delay.ms": "1000"}


class Topics:
    """Of one broker, by its port, or of a cluster, by its addresses."""

    def __init__(self, where: int | str, replicas: int = 1) -> None:
        bootstrap = where if isinstance(where, str) else f"127.0.0.1:{where}"
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._replicas = replicas

    def create(self, topic: str, partitions: int = 1, settings: dict[str, str] | None = None) -> None:
        """Returns when every partition has a leader."""
        config = SETTINGS | (settings or {})
        self._make(NewTopic(topic, num_partitions=partitions, replication_factor=self._replicas, config=config))
        self._wait_until_led(topic, partitions)

    def create_on(self, topic: str, replicas: list[list[int]]) -> None:
        """The same with these brokers for each partition, the first of them as the leader."""
        self._make(NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas, config=SETTINGS))
        self._wait_until_led(topic, len(replicas))

    def _make(self, wanted: NewTopic) -> None:
        topic = wanted.topic
        made = self._admin.create_topics([wanted], request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S)[topic]
        self._wait(made, f"cannot create {topic}")

    def _wait_until_led(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not self._is_led(topic, partitions):
            if time.monotonic() > deadline:
                raise MeasurementFailed(f"{topic} has no leaders after {TIMEOUT_S} s")
            time.sleep(0.05)

    def _is_led(self, topic: str, partitions: int) -> bool:
        try:
            known = self._admin.list_topics(topic, timeout=10).topics[topic]
        except KafkaException:
            return False
        led = [partition for partition in known.partitions.values() if partition.leader >= 0]
        return known.error is None and len(led) == partitions

    def id_of(self, topic: str) -> UUID:
        """The id that the broker gave the topic."""
        described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)[topic]
        try:
            given = str(described.result(TIMEOUT_S + 10).topic_id)
        except (KafkaException, FutureTimeout) as cause:
            raise MeasurementFailed(f"cannot describe {topic}: {cause}") from None
        return UUID(bytes=base64.b64decode(given.translate(str.maketrans("-_", "+/")) + "=="))

    def delete(self, topic: str) -> None:
        gone = self._admin.delete_topics([topic], request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S)[topic]
        self._wait(gone, f"cannot delete {topic}")

    def _wait(self, answer: Future[None], problem: str) -> None:
        try:
            answer.result(TIMEOUT_S + 10)
        except (KafkaException, FutureTimeout) as cause:
            raise MeasurementFailed(f"{problem}: {cause}") from None
