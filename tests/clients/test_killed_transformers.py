"""Consume, transform, produce with the offsets in the transaction, while the program and the broker are killed (-9) at
any point: what comes out is what went in, each message once and in its order.

The program tells where it is (`transformer_process`). A seed chooses how many of its lines go by before the next kill,
and who is killed: so kills fall between all of the steps, and in the middle of them.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .client import DEFAULT_REPLICAS
from .conftest import ON_CLUSTER
from .sites import PENSTOCK, Site, StartSite, sites
from .transformer_process import Options, transformed

pytestmark = pytest.mark.clients

PROJECT = Path(__file__).resolve().parents[2]
PARTITIONS = 3
MESSAGES = 40  # for each partition, before each kill
DEADLINE_S = 240
IDLE_LINES_MAX = 10  # then there is more to do
ENDS_MAX = 30  # by errors that its client cannot answer
SOURCE, TARGET, GROUP = "source", "target", "transformers"
#: A segment ends when its index is full: after a few batches.
MANY_SEGMENTS = {"segment.index.bytes": "40", "index.interval.bytes": "1000"}
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
#: Without an instance id a program that comes back waits for its old self to be thrown out. With one it need not, and
#: its session must be longer than the broker is away: a static member that gives itself up is fenced (by Kafka too).
#: In the new protocol an instance id is not free before the session is over, and the client takes that for final.
CLASSIC = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
STATIC_CLASSIC = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300}
CONSUMER = {"group.protocol": "consumer"}


@pytest.fixture(params=[PENSTOCK, ON_CLUSTER])
def start_some(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartSite]:
    """Starts a broker, or a cluster in which each time another broker is killed."""
    with sites(request.param, tmp_path) as start:
        yield start


class Program:
    """The transformer, killed and started again; several of them share the group."""

    def __init__(self, broker: Site, number: int, settings: dict[str, Any], batch_max: int) -> None:
        self._options = Options(
            bootstrap=broker.bootstrap,
            transactional_id=f"transformer-{number}",
            group_id=GROUP,
            source=SOURCE,
            target=TARGET,
            batch_max=batch_max,
            consumer_settings=settings,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self.said: list[str] = []
        self.ends = 0

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.clients.transformer_process", json.dumps(self._options.__dict__)]
        self._unread = b""
        self._process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE)

    def kill(self) -> None:
        """-9, wherever it is."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    @property
    def output(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    def read(self) -> list[str]:
        """The lines that are there; a program that an error has ended is started again."""
        piece = os.read(self.output, 1 << 16)
        if not piece:
            self.ends += 1
            assert self.ends < ENDS_MAX, self.said[-3:]
            self.kill()
            self.start()
            return ["ended"]
        *lines, self._unread = (self._unread + piece).split(b"\n")
        found = [line.decode() for line in lines]
        self.said += found
        return found


class Run:
    """A broker, programs, and somebody who kills them."""

    def __init__(self, broker: Site, programs: list[Program], seed: int) -> None:
        self.broker = broker
        self.programs = programs
        self.chance = random.Random(seed)
        self.sent = 0  # messages of each partition
        self.deadline_s = time.monotonic() + DEADLINE_S

    def write_some(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(self.sent, self.sent + MESSAGES):
            for index in range(PARTITIONS):
                producer.produce(SOURCE, message(number, index), partition=index)
        assert producer.flush(30) == 0
        self.sent += MESSAGES

    def lines(self) -> Iterator[tuple[Program, str]]:
        """What the programs say, as it comes."""
        while True:
            left_s = self.deadline_s - time.monotonic()
            assert left_s > 0, self._story("it is not done in time")
            by_output = {program.output: program for program in self.programs}
            for output in select.select(list(by_output), [], [], left_s)[0]:
                program = by_output[output]
                for line in program.read():
                    yield program, line

    def kill_somebody(self) -> None:
        what = self.chance.choice(["program", "program", "broker", "both", "broker twice"])
        if what in ("program", "both"):
            victim = self.chance.choice(self.programs)
            victim.kill()
            if what == "both":
                self._kill_broker()
            victim.start()
        else:
            for _ in range(2 if what == "broker twice" else 1):
                self._kill_broker()

    def _kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start()

    def kill_at_random(self, kills: int) -> None:
        """Some lines go by, then somebody is killed; and so on. There is always something to do."""
        self.write_some()
        wait_lines = self.chance.randrange(1, 20)
        idle_lines = 0
        for _, line in self.lines():
            wait_lines -= line != "idle"
            idle_lines = idle_lines + 1 if line == "idle" else 0
            if idle_lines == IDLE_LINES_MAX:
                self.write_some()
            if wait_lines <= 0:
                self.kill_somebody()
                kills -= 1
                if not kills:
                    return
                self.write_some()
                wait_lines = self.chance.choice([1, 2, 3, 4, 5, 7, 9, 12])

    def finish(self) -> None:
        """Until everything has been read and committed."""
        for _, line in self.lines():
            if line == "idle" and self._is_all_committed():
                return

    def _is_all_committed(self) -> bool:
        partitions = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": GROUP, "log_level": 0})
        try:
            return all(each.offset == self.sent for each in consumer.committed(partitions, 10))
        except KafkaException:
            return False
        finally:
            consumer.close()

    def _story(self, what: str) -> str:
        said = [f"program {number} said at last: {program.said[-20:]}" for number, program in enumerate(self.programs)]
        return "\n".join([what, *said, self.broker.log_text()[-4000:]])


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [
        NewTopic(SOURCE, PARTITIONS, DEFAULT_REPLICAS),
        NewTopic(TARGET, PARTITIONS, DEFAULT_REPLICAS, config=MANY_SEGMENTS),
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)
    # librdkafka stumbles where it is interrupted while it asks for the beginning (docs/internals/traps.md)
    beginning = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(SOURCE, index, 0) for index in range(PARTITIONS)])
    for committed in admin.alter_consumer_group_offsets([beginning]).values():
        committed.result(30)


def message(number: int, partition: int) -> bytes:
    return b"%d of %d" % (number, partition)


def read_committed(bootstrap: str) -> dict[int, list[bytes]]:
    """Everything in the target, by partition, to the last stable offset."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "log_level": 0})
    consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    unread = set(found)
    deadline_s = time.monotonic() + 30
    while unread:
        assert time.monotonic() < deadline_s, f"partitions {unread} have no end"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found[message.partition()].append(message.value())
        else:
            unread.discard(message.partition())
    consumer.close()
    return found


def check_exactly_once(
    start_some: StartSite, seed: int, settings: dict[str, Any], *, programs: int, kills: int, static: bool
) -> None:
    broker = start_some(settings=SETTINGS)
    make_topics(broker.bootstrap)
    chance = random.Random(seed)
    with ExitStack() as ends:
        made = []
        for number in range(programs):
            instance = {"group.instance.id": f"transformer-{number}"} if static else {}
            program = Program(broker, number, {**settings, **instance}, chance.choice([5, 20, 60]))
            ends.callback(program.kill)
            program.start()
            made.append(program)
        run = Run(broker, made, seed)
        run.kill_at_random(kills)
        run.finish()
    wanted = {index: [transformed(message(number, index)) for number in range(run.sent)] for index in range(PARTITIONS)}
    assert read_committed(broker.bootstrap) == wanted


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_message_comes_out_once(start_some: StartSite, protocol: str) -> None:
    settings = STATIC_CLASSIC if protocol == "classic" else CONSUMER
    check_exactly_once(start_some, 1, settings, programs=1, kills=4, static=protocol == "classic")


def test_programs_that_share_the_work(start_some: StartSite) -> None:
    check_exactly_once(start_some, 2, CLASSIC, programs=2, kills=3, static=False)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("seed", range(10, 30))
def test_many_times(start_some: StartSite, protocol: str, seed: int) -> None:
    static = seed % 2 == 0 and protocol == "classic"
    settings = CONSUMER if protocol == "consumer" else STATIC_CLASSIC if static else CLASSIC
    check_exactly_once(start_some, seed, settings, programs=1 + seed % 3, kills=15, static=static)
