"""Clients at work on a cluster to whose brokers things happen, and the judge at the end.

    with Storm(cluster) as storm:
        storm.work(300)                                  # until so many more messages were acknowledged
        storm.befall("kill of a leader", lambda: cluster.kill(0))
        storm.judge()

confluent-kafka and aiokafka write with idempotent producers and acks=all, each to all partitions in turn, and read
everything as it comes. `befall` waits until every partition has acknowledged something that was sent afterwards, and
notes how long that took. `judge` fails if anything acknowledged is lost, doubled, changed or out of order, or if the
replicas differ in a byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from threading import BoundedSemaphore, Event, Thread
from types import TracebackType
from typing import Self

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory

from ..clients.aiokafka_client import AiokafkaClient
from ..clients.client import DEADLINE_S, Client, Message, Producer
from ..clients.confluent_client import ConfluentClient
from ..clients.whole_topics import is_last, judge, read_topics
from .clusters import StormyCluster
from .measured import note

TOPIC = "written-in-storms"
PADDING_BYTES = 200
PACE_S = 0.004
UNANSWERED_MAX = 2_000
RECOVERY_S = 60.0
#: Of librdkafka: a broker that stands still is given up after a second, and is asked again soon.
IMPATIENT = {
    "socket.timeout.ms": 1_000,
    "request.timeout.ms": 1_000,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,
}


class Storm:
    """See the head of this file. `names` are the clients that write; the time of the first one counts."""

    def __init__(
        self,
        cluster: StormyCluster,
        *,
        names: Iterable[str] = (ConfluentClient.name, AiokafkaClient.name),
        partitions: int = 3,
        topic_settings: dict[str, str] | None = None,
    ) -> None:
        self.cluster = cluster
        self.history = ClientHistory(time.monotonic)
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._names = list(names)
        self._topic_settings = topic_settings
        self._is_over = Event()
        self._stack = ExitStack()
        self._threads: list[Thread] = []
        self._broken: list[Exception] = []
        self._since_s = 0.0
        self._written_s: dict[tuple[str, TopicPartition], float] = {}  # when it took what a client sent since then
        self._acked_s: dict[TopicPartition, float] = {}  # the last time
        self._silence_s = 0.0

    def __enter__(self) -> Self:
        clients = [ConfluentClient(self.cluster.bootstrap), AiokafkaClient(self.cluster.bootstrap)]
        for client in clients:
            self._stack.callback(client.close)
        with clients[0].admin() as admin:
            admin.create_topics({TOPIC: len(self.partitions)}, self._topic_settings)
        for client in clients:
            if client.name in self._names:
                self._start(self._write, client)
            self._start(self._follow, client)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end_clients()
        finally:
            self._stack.close()

    # What happens

    def work(self, messages: int) -> None:
        """Until so many more messages were acknowledged."""
        self.history.wait_for_acknowledged(self.history.acknowledged + messages, RECOVERY_S)

    def befall(self, what: str, act: Callable[[], object], *, is_for_all: bool = False) -> float:
        """Let something happen; the seconds until every partition takes writes again, of one client or of all."""
        since_s, self._written_s = time.monotonic(), {}
        self._since_s, self._silence_s = since_s, 0.0
        act()
        for name in self._names if is_for_all else self._names[:1]:
            self._wait_until_written(name)
            note(f"{what}, until all partitions take writes of {name} again", self._written_since(name) - since_s)
        return self._written_since(self._names[0]) - since_s

    def _wait_until_written(self, name: str) -> None:
        def missing() -> list[TopicPartition]:
            return [where for where in self.partitions if (name, where) not in self._written_s]

        self.history.wait_for(
            lambda: not missing() or bool(self._broken),
            RECOVERY_S,
            lambda: f"{missing()} do not take writes of {name} again\n{self.cluster.log_text()[-6000:]}",
        )
        self._check()

    def _written_since(self, name: str) -> float:
        return max(self._written_s[name, where] for where in self.partitions)

    def note_silence(self, what: str) -> None:
        """The longest time since the last thing happened in which a partition acknowledged nothing."""
        note(f"{what}, the longest silence", self._silence_s)

    def leader(self, partition: int = 0) -> int:
        """Who leads a partition now, somebody does."""
        return self.cluster.sight.leaders(TOPIC)[partition]

    # The verdict

    def judge(self) -> None:
        """Everything must be there, on every replica."""
        self._end_clients()
        self._check()
        assert self.history.errors == []
        assert self.history.acknowledged == self.history.sent
        self.cluster.sight.wait_in_sync()
        judge(self.history, read_topics(self.cluster.bootstrap, self.partitions))
        self.cluster.sight.wait_in_sync()
        self.cluster.stop_all()
        for where in self.partitions:
            check_equal_logs(where, self.cluster.log_folders())

    def _check(self) -> None:
        if self._broken:
            raise AssertionError(f"a client broke\n{self.cluster.log_text()[-6000:]}") from self._broken[0]

    def _end_clients(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(RECOVERY_S + DEADLINE_S)
        assert not any(thread.is_alive() for thread in self._threads), self.cluster.log_text()[-6000:]
        self._threads.clear()

    # Clients

    def _start(self, work: Callable[[Client], None], client: Client) -> None:
        def run() -> None:
            try:
                work(client)
            except Exception as error:
                self._broken.append(error)

        self._threads.append(Thread(target=run, name=f"{work.__name__} {client.name}", daemon=True))
        self._threads[-1].start()

    def _write(self, client: Client) -> None:
        room = BoundedSemaphore(UNANSWERED_MAX)
        with client.producer(idempotent=True, linger_ms=1, librdkafka=IMPATIENT) as producer:
            numbers = count()
            while not self._is_over.wait(PACE_S):
                for where in self.partitions:
                    while not room.acquire(timeout=PACE_S):
                        with suppress(AssertionError, TimeoutError):  # some clients hear of answers only when asked
                            producer.flush(PACE_S)
                    self._send(producer, client.name, next(numbers), where, room.release)
            producer.flush(RECOVERY_S)

    def _send(
        self, producer: Producer, name: str, number: int, where: TopicPartition, answered: Callable[[], None]
    ) -> None:
        sent_s = time.monotonic()
        value = self.history.sending(name, number, where, padding_bytes=PADDING_BYTES)

        def done(_: int, offset: int, error: Exception | None) -> None:
            if error is not None:
                self.history.failed(value, error)
            else:
                self._note_answer(name, where, sent_s)
                self.history.acked(value, offset)
            answered()

        producer.send(TOPIC, Message(value, partition=where.partition), done)

    def _note_answer(self, name: str, where: TopicPartition, sent_s: float) -> None:
        now_s = time.monotonic()
        if sent_s >= self._since_s:
            self._written_s.setdefault((name, where), now_s)
        self._silence_s = max(self._silence_s, now_s - self._acked_s.get(where, now_s))
        self._acked_s[where] = now_s

    def _follow(self, client: Client) -> None:
        stretches = [self.history.reading(f"{client.name} reads", where, 0) for where in self.partitions]
        with client.reader(TOPIC, range(len(self.partitions))) as reader:
            while not self._is_over.is_set():
                for message in reader.poll(0.5):
                    if not is_last(message):
                        assert message.partition is not None
                        self.history.saw(stretches[message.partition], message.offset, message.value)


def check_equal_logs(where: TopicPartition, folders: Iterable[Path]) -> None:
    """All replicas have the same bytes, however they are cut into segments."""
    logs = {}
    for folder in folders:
        paths = sorted(folder.glob(f"{where.topic}-{where.partition}/*.log"))
        logs[folder] = b"".join(path.read_bytes() for path in paths)
    (first, whole), *others = logs.items()
    for other, bytes_there in others:
        if bytes_there != whole:
            at = next((i for i, (a, b) in enumerate(zip(whole, bytes_there, strict=False)) if a != b), -1)
            sizes = f"{len(whole)} and {len(bytes_there)} bytes, which differ at {at}"
            raise AssertionError(f"{where} is not the same in {first} and {other}: {sizes}")
    assert whole, f"{where} is empty"
