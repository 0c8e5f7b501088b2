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
    def __init__(self, port: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})

    def create(self, topic: str, partitions: int = 1, settings: dict[str, str] | None = None) -> None:
        """Returns when every partition has a leader."""
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=SETTINGS | (settings or {}))
        made = self._admin.create_topics([wanted], request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S)[topic]
        self._wait(made, f"cannot create {topic}")
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
