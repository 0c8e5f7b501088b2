"""Messages that flow while a scenario happens: an idempotent producer in a thread, and everything noted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event, Thread

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory

from .client import Client, Message, Producer

PACE_S = 0.02
BURST = 3
PATIENCE_S = 90.0


def send_noted(producer: Producer, history: ClientHistory, where: TopicPartition, value: bytes) -> None:
    """Hand over a message that the history knows, and note the answer."""

    def done(_: int, offset: int, error: Exception | None) -> None:
        if error is None:
            history.acked(value, offset)
        else:
            history.failed(value, error)

    producer.send(where.topic, Message(value, partition=where.partition), done)


class MessageFlow:
    """Sends a few messages to each partition in turn, again and again, while `may_go_on`."""

    def __init__(
        self,
        client: Client,
        history: ClientHistory,
        partitions: Sequence[TopicPartition],
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self.values: list[bytes] = []
        self._client = client
        self._history = history
        self._partitions = partitions
        self._may_go_on = may_go_on
        self._is_over = Event()
        self._error: Exception | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and wait for all answers."""
        self._is_over.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), "the flow of messages has not ended"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with self._client.producer(idempotent=True, linger_ms=1) as producer:
                while not self._is_over.wait(PACE_S):
                    if self._may_go_on():
                        self._burst(producer)
                producer.flush(PATIENCE_S)
        except Exception as error:
            self._error = error

    def _burst(self, producer: Producer) -> None:
        for _ in range(BURST):
            number = len(self.values)
            where = self._partitions[number % len(self._partitions)]
            self.values.append(self._history.sending("flow", number, where))
            send_noted(producer, self._history, where, self.values[-1])
