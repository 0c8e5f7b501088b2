"""How long a cluster does not take writes when a broker goes: until the next acknowledged message of a real client.

The client is confluent-kafka with its own defaults: an idempotent producer with acks=all that sends a message every few
milliseconds. What is timed begins just before the signal. A broker that stands still is another matter: a client waits
for its answer as long as it is told to, so there the client gives up after a second.

Each measurement has a topic of its own, whose leader is the one that is to go, and a producer of its own.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from bench import work
from bench.clusters import CLUSTERS, Cluster, wait_s
from bench.load import Figures, MeasurementFailed
from bench.replicated import running_cluster
from bench.stages import Run
from bench.topics import Topics
from penstock.testing.raw_client import ConnectionEnded, RawClient
from penstock.wire.messages import k03_metadata as k03
from penstock.wire.messages import k19_create_topics as k19
from penstock.wire.messages import k60_describe_cluster as k60

PARTITIONS_MANY = 1000
PACE_S = 0.002
WITHIN_S = 120.0
PRODUCER = {"enable.idempotence": True, "acks": "all", "linger.ms": 0, "log_level": 0}
IMPATIENT = {"socket.timeout.ms": 1000, "request.timeout.ms": 1000}


def failovers(run: Run) -> None:
    """Each on a cluster of its own, so that nothing of the one before is in it."""
    items = [item for item in work.FAILOVERS if item.name in run.only]
    for number in range(run.rounds):
        kinds = run.kinds if number % 2 == 0 else run.kinds[::-1]
        for item in items:
            for kind in kinds:
                run.measure(item.name, kind.name, number, partial(_one, run, item, CLUSTERS[kind]))


def _one(run: Run, item: work.Failover, kind: type[Cluster]) -> Figures:
    with running_cluster(run, kind) as cluster:
        samples = [MEASUREMENTS[item.what](cluster, item, number) for number in range(run.sizes.failovers)]
    medians = {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}
    return medians | {f"{name}_max": max(sample[name] for sample in samples) for name in samples[0]}


def _victim(cluster: Cluster, item: work.Failover) -> int:
    controller = cluster.controller()
    return controller if item.is_controller else next(one for one in cluster.addresses() if one != controller)


def _led_by(cluster: Cluster, leader: int, topic: str, partitions: int = 1) -> None:
    """Make a topic that this broker leads, and have its replicas in sync."""
    others = [one for one in cluster.addresses() if one != leader]
    turns = [[leader, *others], [leader, *others[::-1]]]
    Topics(cluster.bootstrap).create_on(topic, [turns[number % 2] for number in range(partitions)])
    cluster.sight.wait_in_sync()


# ---- one partition


def kill(cluster: Cluster, item: work.Failover, number: int) -> Figures:
    """The leader of a partition is killed."""
    victim, topic = _victim(cluster, item), f"killed-{number}"
    _led_by(cluster, victim, topic)
    with Writing(cluster.bootstrap, topic) as writing:
        began_s = time.monotonic()
        cluster.kill(victim)
        took_s = writing.first_since(began_s) - began_s
    cluster.bring_back(victim)
    return {"writable_ms": took_s * 1000}


def pause(cluster: Cluster, item: work.Failover, number: int) -> Figures:
    """The same with a leader that is stopped, and goes on when another leads."""
    victim, topic = _victim(cluster, item), f"paused-{number}"
    _led_by(cluster, victim, topic)
    with Writing(cluster.bootstrap, topic, IMPATIENT) as writing:
        began_s = time.monotonic()
        cluster.pause(victim)
        try:
            took_s = writing.first_since(began_s) - began_s
        finally:
            cluster.resume(victim)
    cluster.sight.wait_in_sync()
    return {"writable_s": took_s}


class Writing:
    """A producer in a thread that sends all the time; it knows when what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, settings: dict[str, Any] | None = None) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER, **(settings or {})})
        self._is_over = Event()
        self._since_s = float("inf")
        self._first_s: float | None = None
        self._error: KafkaError | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writing:
        """Returns when it is acknowledged what it sends."""
        self._thread.start()
        self.first_since(time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(WITHIN_S)

    def first_since(self, since_s: float) -> float:
        """When the first message that was sent since then was acknowledged; waits for it."""
        self._first_s, self._since_s = None, since_s
        wait_s(lambda: self._first_s is not None or self._error is not None, WITHIN_S, "nothing is acknowledged")
        if self._error is not None:
            raise MeasurementFailed(f"a message was refused: {self._error}")
        assert self._first_s is not None
        return self._first_s

    def _run(self) -> None:
        while not self._is_over.is_set():
            sent_s = time.monotonic()
            with contextlib.suppress(BufferError):
                answered = partial(self._answered, sent_s)
                self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=answered)
            self._producer.poll(PACE_S)
        self._producer.flush(WITHIN_S)

    def _answered(self, sent_s: float, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._error = error
        elif sent_s >= self._since_s and self._first_s is None:
            self._first_s = time.monotonic()


# ---- a thousand partitions


def kill_many(cluster: Cluster, item: work.Failover, number: int) -> Figures:
    """The leader of a thousand partitions is killed.

    How long until another broker knows that it is gone, from then until all the others know all the new leaders, and
    from the kill until a client has written to every partition.
    """
    victim, topic = _victim(cluster, item), f"many-{number}"
    _led_by(cluster, victim, topic, PARTITIONS_MANY)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **PRODUCER, "linger.ms": 5})
    _write_to_all(producer, topic)
    survivors = [address for one, address in cluster.addresses().items() if one != victim]
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(_connected(address)) for address in survivors]
        began_s = time.monotonic()
        cluster.kill(victim)
        written_s: list[float] = []
        writing = Thread(target=lambda: written_s.append(_write_to_all(producer, topic)), daemon=True)
        writing.start()
        gone_s = wait_s(lambda: any(victim not in _brokers(one) for one in asked), WITHIN_S, "it is not missed")
        led_s = wait_s(lambda: all(_is_led(one, topic, victim) for one in asked), WITHIN_S, "it leads still")
    writing.join(WITHIN_S)
    if not written_s:
        raise MeasurementFailed("not every partition could be written to")
    cluster.bring_back(victim)
    Topics(cluster.bootstrap).delete(topic)
    figures = {"gone": gone_s - began_s, "elected": led_s - gone_s, "all_writable": written_s[0] - began_s}
    return {f"{name}_ms": seconds * 1000 for name, seconds in figures.items()}


def _write_to_all(producer: Producer, topic: str) -> float:
    """One message to each partition; when the last one was acknowledged."""
    acked: list[float] = []

    def answered(error: KafkaError | None, _message: Message) -> None:
        if error is None:
            acked.append(time.monotonic())

    for partition in range(PARTITIONS_MANY):
        producer.produce(topic, b"x", partition=partition, on_delivery=answered)
    producer.flush(WITHIN_S)
    if len(acked) < PARTITIONS_MANY:
        raise MeasurementFailed(f"only {len(acked)} of {PARTITIONS_MANY} partitions took a message")
    return acked[-1]


def _connected(address: str) -> RawClient:
    host, _, port = address.rpartition(":")
    return RawClient(host, int(port))


def _brokers(client: RawClient) -> set[int]:
    """Those that live. Metadata does not do here: it may name one that has just died, for clients that look for it."""
    return {one.broker_id for one in client.call(k60.DescribeClusterRequest(), 0).brokers}


def _is_led(client: RawClient, topic: str, victim: int) -> bool:
    (found,) = client.call(k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name=topic)])).topics
    return not any(one.leader_id in (victim, -1) for one in found.partitions)


# ---- the controller


def kill_controller(cluster: Cluster, item: work.Failover, number: int) -> Figures:
    """The controller is killed; how long until another one has made a topic."""
    victim = _victim(cluster, item)
    survivors = [address for one, address in cluster.addresses().items() if one != victim]
    with _connected(survivors[0]) as client:
        began_s = time.monotonic()
        cluster.kill(victim)
        made_s = wait_s(lambda: _makes_topic(client, f"made-{number}", survivors), WITHIN_S, "no topic can be made")
    cluster.bring_back(victim)
    return {"topic_made_ms": (made_s - began_s) * 1000}


def _makes_topic(client: RawClient, name: str, survivors: list[str]) -> bool:
    """Two replicas, for there are only two brokers."""
    wanted = k19.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=len(survivors))
    try:
        (answer,) = client.call(k19.CreateTopicsRequest(topics=[wanted], timeout_ms=1000)).topics
    except (ConnectionEnded, TimeoutError) as problem:
        raise MeasurementFailed(f"a broker that lives does not answer: {problem}") from None
    return bool(answer.error_code == 0 or answer.error_code == TOPIC_ALREADY_EXISTS)


TOPIC_ALREADY_EXISTS = 36
Measurement = Callable[[Cluster, work.Failover, int], Figures]
MEASUREMENTS: dict[str, Measurement] = {
    "kill": kill,
    "pause": pause,
    "kill many": kill_many,
    "kill controller": kill_controller,
}
