"""Brokers for tests of writing, rows to write, and what a client of another make reads of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.columnar.cluster import Cluster
from penstock.columnar.settings import ClientSettings
from penstock.testing.apache_kafka import ApacheKafka, find_jars
from penstock.testing.broker_process import BrokerProcess, free_port
from penstock.testing.tcp_proxy import TcpProxy

T = TypeVar("T")

DEADLINE_S = 60.0
PENSTOCK, KAFKA, OLDER_KAFKA = "penstock", "apache-kafka", "apache-kafka-older-transactions"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
ON_PENSTOCK = pytest.param(PENSTOCK, marks=pytest.mark.clients)
ON_KAFKA = pytest.param(KAFKA, marks=pytest.mark.kafka)
ON_OLDER_KAFKA = pytest.param(OLDER_KAFKA, marks=pytest.mark.kafka)


class Row(NamedTuple):
    """A message as it was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


class ProducingSite:
    """A broker, or several, with topics of their own for every test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def new_topic(self, partitions: int = 1, **settings: str) -> str:
        name = f"rows-{uuid4().hex[:10]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, config=config)])[name].result(DEADLINE_S)
        wait_until(lambda: name in admin.list_topics(timeout=DEADLINE_S).topics, f"topic {name}")
        return name

    def delete_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([name])[name].result(DEADLINE_S)

    def cluster(self, **settings: str) -> Cluster:
        """A cluster for a test; underscores in names of settings stand for dots."""
        return cluster_at(self.bootstrap, **settings)

    def read(self, topic: str, *, committed: bool = True) -> list[Row]:
        return read_all(self.bootstrap, topic, committed=committed)

    def values(self, topic: str, *, committed: bool = True) -> list[bytes | None]:
        return [row.value for row in self.read(topic, committed=committed)]


def cluster_at(bootstrap: str, **settings: str) -> Cluster:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Cluster(ClientSettings.parse({"bootstrap.servers": bootstrap, **given}))


def read_all(bootstrap: str, topic: str, *, committed: bool = True) -> list[Row]:
    """All that there is now, partition by partition, as confluent-kafka reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    try:
        count = len(consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
        return sorted(_read_to_the_ends(consumer, set(range(count))), key=lambda row: (row.partition, row.offset))
    finally:
        consumer.close()


def _read_to_the_ends(consumer: Consumer, left: set[int]) -> Iterator[Row]:
    deadline_s = time.monotonic() + DEADLINE_S
    while left:
        assert time.monotonic() < deadline_s, f"partitions {left} are not at their ends"
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                yield Row(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.headers() or [],
                    message.timestamp()[1],
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise AssertionError(error)


def numbered(first: int, count: int, **columns: Any) -> pa.RecordBatch:
    """Rows with the values first, first + 1, … as text."""
    values = [str(number).encode() for number in range(first, first + count)]
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def texts(numbers: Sequence[int] | range) -> list[bytes | None]:
    return [str(number).encode() for number in numbers]


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"in vain: {what}"
        time.sleep(0.02)


class ProducingSites:
    """Starts each kind of broker once."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._running: dict[str, BrokerProcess | ApacheKafka] = {}

    def get(self, kind: str) -> ProducingSite:
        if kind not in self._running:
            self._running[kind] = self._start(kind)
        return ProducingSite(self._running[kind].bootstrap)

    def _start(self, kind: str) -> BrokerProcess | ApacheKafka:
        folder = self._folders.mktemp(kind)
        if kind == PENSTOCK:
            return BrokerProcess(folder / "data", settings=SETTINGS).start()
        features = ["transaction.version=1"] if kind == OLDER_KAFKA else []
        settings = {**SETTINGS, "controlled.shutdown.enable": "false"}
        return ApacheKafka(find_jars(), folder, settings=settings, features=features).start()

    def close(self) -> None:
        for broker in self._running.values():
            broker.stop()


@pytest.fixture(scope="session")
def producing_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProducingSites]:
    sites = ProducingSites(tmp_path_factory)
    yield sites
    sites.close()


@pytest.fixture(params=[ON_PENSTOCK, ON_KAFKA])
def site(request: pytest.FixtureRequest, producing_sites: ProducingSites) -> ProducingSite:
    """Penstock, and Apache Kafka."""
    if request.param != PENSTOCK:
        request.getfixturevalue("kafka_libs")
    return producing_sites.get(request.param)


@pytest.fixture
def penstock_site(producing_sites: ProducingSites) -> ProducingSite:
    return producing_sites.get(PENSTOCK)


class ThreadedProxy:
    """A proxy whose loop runs in a thread of its own, for tests that block."""

    def __init__(self, proxy: TcpProxy, loop: asyncio.AbstractEventLoop) -> None:
        self.proxy = proxy
        self._loop = loop

    def do(self, act: Callable[[TcpProxy], None]) -> None:
        """Have something done to the proxy, and wait until it is."""
        done: Future[None] = Future()

        def run() -> None:
            act(self.proxy)
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(DEADLINE_S)


@contextmanager
def proxy_to(port: int) -> Iterator[ThreadedProxy]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        proxy = asyncio.run_coroutine_threadsafe(TcpProxy("127.0.0.1", port).__aenter__(), loop).result(DEADLINE_S)
        try:
            yield ThreadedProxy(proxy, loop)
        finally:
            asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result(DEADLINE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Proxied(ProducingSite):
    """A broker that can only be reached through a proxy."""

    def __init__(self, broker: BrokerProcess, port: int, proxy: ThreadedProxy) -> None:
        super().__init__(f"127.0.0.1:{proxy.proxy.port}")
        self.broker = broker
        self.port = port  # of the broker itself
        self._proxy = proxy

    def while_answers_are_lost(self, act: Callable[[], T], until: Callable[[], object]) -> T:
        """Do something of which no answer comes back until a condition holds; then the connections are cut."""
        with ThreadPoolExecutor(1) as threads:
            with self.swallowed_answers():
                done = threads.submit(act)
                wait_until(lambda: done.done() or until(), "what is done although nobody hears of it")
                assert not done.done(), "it did not wait for its answer"
            return done.result(DEADLINE_S)

    @contextmanager
    def swallowed_answers(self) -> Iterator[None]:
        """No answer comes back meanwhile; at the end the connections are cut."""
        self._proxy.do(lambda proxy: setattr(proxy, "swallows_answers", True))
        try:
            yield
        finally:
            self._proxy.do(_mend)

    def cut(self) -> None:
        self._proxy.do(TcpProxy.cut)

    def log_bytes(self, topic: str) -> int:
        """What the broker has on its disk."""
        return sum(path.stat().st_size for path in self.broker.data.rglob(f"{topic}-*/*.log"))


def _mend(proxy: TcpProxy) -> None:
    proxy.heal()
    proxy.cut()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    port = free_port()
    with proxy_to(port) as proxy:
        settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.proxy.port}"}
        with BrokerProcess(tmp_path / "data", port=port, settings=settings) as broker:
            yield Proxied(broker, port, proxy)
