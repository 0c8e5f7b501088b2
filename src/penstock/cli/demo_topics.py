"""The two threads of `penstock demo` that talk to the cluster: one sends orders, one reads what the pipeline made."""

from __future__ import annotations

import threading
import time
from collections import Counter

from confluent_kafka import Consumer, KafkaError, Message, Producer

from penstock.cli.demo_orders import OrderStream
from penstock.cli.demo_pipeline import DEAD_TOPIC, ORDERS_TOPIC, REVENUE_TOPIC

TICK_S = 0.1
FLUSH_S_MAX = 10.0
POLL_S = 0.2


class Feed:
    """Sends so many orders per second until it is stopped."""

    def __init__(self, bootstrap: str, stream: OrderStream, orders_per_s: float) -> None:
        self.stream = stream
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
        self._orders_per_s = orders_per_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-demo-feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(FLUSH_S_MAX + TICK_S)

    def _run(self) -> None:
        due = 0.0
        while not self._stopped.wait(TICK_S):
            due += self._orders_per_s * TICK_S
            for order in self.stream.take(int(due), time.time()):
                self._send(order.key, order.value)
            due -= int(due)
            self._producer.poll(0)
        self._producer.flush(FLUSH_S_MAX)

    def _send(self, key: bytes, value: bytes) -> None:
        while not self._stopped.is_set():
            try:
                self._producer.produce(ORDERS_TOPIC, value, key)
                return
            except BufferError:  # the cluster is slower than we are
                self._producer.poll(TICK_S)


class Results:
    """Counts the records of the topics that the pipeline writes, and keeps the last of each."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: Counter[str] = Counter()
        self.last: dict[str, str] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "penstock-demo",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([REVENUE_TOPIC, DEAD_TOPIC])
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-demo-results", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(FLUSH_S_MAX)

    def _run(self) -> None:
        while not self._stopped.is_set():
            for message in self._consumer.consume(500, POLL_S):
                self._take(message)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error: KafkaError | None = message.error()
        if error is not None:
            return
        topic = message.topic() or ""
        self.counts[topic] += 1
        self.last[topic] = (
            _reason(message) if topic == DEAD_TOPIC else (message.value() or b"").decode(errors="replace")
        )


def _reason(message: Message) -> str:
    """Why a record could not be read, as its headers say, and how it begins."""
    told = next((_text(value) for name, value in dict(message.headers() or []).items() if "reason" in name), "")
    begins = (message.value() or b"")[:40].decode(errors="replace")
    return f"{told}: {begins}…" if told else f"{begins}…"


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
