"""A broker that is killed, stopped and paused while clients write: nothing acknowledged is lost, nothing is changed,
nothing is there twice, and the order of each producer is kept.

Producers are idempotent and retry by themselves; the history of what they were told is judged at the end against the
whole topic, read anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Event, Thread

import pytest

from penstock.base.identifiers import TopicPartition
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Stored, TopicsRead
from penstock.testing.pytest_plugin import StartPenstock

from .client import DEADLINE_S, Client, Message
from .conftest import CLIENTS

pytestmark = pytest.mark.clients

PARTITIONS = 3
PRODUCERS = 3
UNANSWERED_MAX = 300
PADDING_BYTES = 200
RECOVERY_S = 60
#: A segment ends when its index is full: after a few batches.
MANY_SEGMENTS = {"segment.index.bytes": "40", "index.interval.bytes": "1000"}

Fault = Callable[[BrokerProcess], None]


def kill(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def kill_twice(broker: BrokerProcess) -> None:
    kill(broker)
    kill(broker)


def restart(broker: BrokerProcess) -> None:
    broker.restart()


def pause(broker: BrokerProcess) -> None:
    broker.pause()
    broker.resume()


@contextmanager
def client_of(broker: BrokerProcess, name: str) -> Iterator[Client]:
    client: Client = next(kind for kind in CLIENTS if kind.name == name)(broker.bootstrap)
    try:
        yield client
    finally:
        client.close()


def write_until(stop: Event, client: Client, topic: str, name: str, history: ClientHistory) -> None:
    """One producer that sends as fast as it is answered, to all partitions in turn."""
    room = BoundedSemaphore(UNANSWERED_MAX)
    with client.producer(idempotent=True, linger_ms=1) as producer:
        number = 0
        while not stop.is_set():
            if not room.acquire(timeout=0.5):
                continue
            where = TopicPartition(topic, number % PARTITIONS)
            value = history.sending(name, number, where, padding_bytes=PADDING_BYTES)

            def done(partition: int, offset: int, error: Exception | None, value: bytes = value) -> None:
                if error is None:
                    history.acked(value, offset)
                else:
                    history.failed(value, error)
                room.release()

            producer.send(topic, Message(value, partition=number % PARTITIONS), done)
            number += 1
            if number % 50 == 0:
                producer.flush(RECOVERY_S)


def follow_until(stop: Event, client: Client, topic: str, history: ClientHistory) -> None:
    stretches = [history.reading("follower", TopicPartition(topic, number), 0) for number in range(PARTITIONS)]
    with client.reader(topic, range(PARTITIONS)) as reader:
        while not stop.is_set():
            for message in reader.poll(0.5):
                assert message.partition is not None
                history.saw(stretches[message.partition], message.offset, message.value)


def read_everything(client: Client, topic: str) -> TopicsRead:
    partitions = {}
    for number in range(PARTITIONS):
        first, end = client.offsets(topic, number)
        messages = client.consume(topic, end - first, [number])
        partitions[TopicPartition(topic, number)] = [Stored(one.offset, one.value) for one in messages]
    return TopicsRead(partitions)


def run(
    start_penstock: StartPenstock,
    name: str,
    faults: list[Fault],
    *,
    messages_between: int,
    topic_settings: dict[str, str] | None = None,
    settings: dict[str, str] | None = None,
) -> BrokerProcess:
    """Write and follow while the faults happen, one after the other, each after that many more acknowledgements."""
    broker = start_penstock(settings=settings or {})
    history, stop, topic = ClientHistory(time.monotonic), Event(), "written-in-storms"
    with client_of(broker, name) as client, client_of(broker, "confluent-kafka") as reading:
        with reading.admin() as admin:
            admin.create_topics({topic: PARTITIONS}, topic_settings)
        threads = [
            Thread(target=write_until, args=(stop, client, topic, f"producer-{number}", history), daemon=True)
            for number in range(PRODUCERS)
        ]
        threads.append(Thread(target=follow_until, args=(stop, reading, topic, history), daemon=True))
        for thread in threads:
            thread.start()
        try:
            for fault in [*faults, lambda _: None]:
                history.wait_for_acknowledged(history.acknowledged + messages_between, RECOVERY_S)
                fault(broker)
        finally:
            stop.set()
            for thread in threads:
                thread.join(RECOVERY_S + DEADLINE_S)
        assert not any(thread.is_alive() for thread in threads), broker.log_text()
        assert history.errors == []
        assert history.acknowledged == history.sent
        assert history.findings(read_everything(reading, topic)) == [], broker.log_text()
    return broker


def test_killed_in_mid_stream(library: Client, start_penstock: StartPenstock) -> None:
    broker = run(start_penstock, library.name, [kill, kill_twice], messages_between=300)
    broker.stop()


def test_killed_while_every_write_is_synced(start_penstock: StartPenstock) -> None:
    run(
        start_penstock,
        "confluent-kafka",
        [kill, kill],
        messages_between=200,
        topic_settings={"flush.mode": "always"},
    )


def test_killed_while_segments_roll(start_penstock: StartPenstock) -> None:
    broker = run(start_penstock, "confluent-kafka", [kill, kill], messages_between=600, topic_settings=MANY_SEGMENTS)
    assert len(list(broker.data.glob("logs/written-in-storms-*/*.log"))) > 5 * PARTITIONS


def test_stopped_and_started_in_mid_stream(start_penstock: StartPenstock) -> None:
    run(start_penstock, "confluent-kafka", [restart], messages_between=400)


def test_paused_in_mid_stream(start_penstock: StartPenstock) -> None:
    run(start_penstock, "confluent-kafka", [pause], messages_between=400)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["confluent-kafka", "kafka-python", "aiokafka"])
@pytest.mark.parametrize("topic_settings", [{}, {"flush.mode": "always"}, MANY_SEGMENTS])
def test_killed_many_times(start_penstock: StartPenstock, name: str, topic_settings: dict[str, str]) -> None:
    faults = [kill, kill_twice, restart, pause, kill] * 4
    run(start_penstock, name, faults, messages_between=700, topic_settings=topic_settings)


def test_everything_is_there_after_a_clean_restart(library: Client, start_penstock: StartPenstock) -> None:
    broker = start_penstock()
    with client_of(broker, library.name) as client:
        with client.admin() as admin:
            admin.create_topics({"kept": 2}, {"retention.ms": "123456789"})
            before = admin.describe_cluster()
        sent = [Message(b"%d" % number, key=b"k", partition=number % 2) for number in range(500)]
        client.produce("kept", sent, compression="gzip")
        broker.restart()
        with client.admin() as admin:
            assert admin.topic_configs("kept")["retention.ms"] == "123456789"
            assert admin.describe_cluster() == before
        for partition in (0, 1):
            got = client.consume("kept", 250, [partition])
            assert [message.value for message in got] == [one.value for one in sent if one.partition == partition]
        client.produce("kept", [Message(b"after", partition=0)])
        assert client.consume("kept", 1, start=250)[0].value == b"after"


def test_admin_changes_survive_a_kill(library: Client, start_penstock: StartPenstock) -> None:
    broker = start_penstock()
    with client_of(broker, library.name) as client:
        with client.admin() as admin:
            admin.create_topics({"kept": 1, "gone": 1})
            admin.create_partitions("kept", 4)
            admin.alter_topic_config("kept", "retention.ms", "123456789")
            admin.delete_topic("gone")
        client.produce("kept", [Message(b"%d" % number, partition=3) for number in range(10)])
        with client.admin() as admin:
            assert admin.delete_records("kept", 3, 4) == 4
        broker.kill()
        broker.start()
        with client.admin() as admin:
            assert admin.list_topics() == {"kept"}
            assert len(admin.partitions_of("kept")) == 4
            assert admin.topic_configs("kept")["retention.ms"] == "123456789"
        assert client.offsets("kept", 3) == (4, 10)
        assert [message.offset for message in client.consume("kept", 6, [3])] == list(range(4, 10))
