"""Kafka Streams with exactly_once_v2: a word count that is killed and brought back, and its broker too, counts exactly.

The application (WordCount.java) copies lines, and counts their words over a repartition topic and a state store with a
changelog. While lines keep coming, now an instance of it and now the broker is killed (SIGKILL) in the middle of its
work and started again on the same folders. At the end `read_committed` must show every line once, and the counts of
every word as 1, 2, 3 … without a gap and without a number twice.
"""

from __future__ import annotations

import random
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
JAVA = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
TOPICS = {"lines": 3, "copies": 3, "counts": 3}
WORDS = [f"word{number}" for number in range(30)]
LINES_PER_ROUND = 60
WORDS_PER_LINE = 6
WAIT_S = 90.0
#: A member that was killed is missed soon.
BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}
APPLICATION_SETTINGS = {
    "commit.interval.ms": "50",
    "num.stream.threads": "1",
    "session.timeout.ms": "2000",
    "heartbeat.interval.ms": "300",
    "transaction.timeout.ms": "5000",
    "max.poll.records": "20",
}


def compiled(libs: Path, folder: Path) -> str:
    """The class path of the application with these jars."""
    command = ["javac", "-cp", f"{libs}/*", "-d", str(folder), str(HERE / "WordCount.java")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return f"{folder}:{libs}/*"


@pytest.fixture(scope="module")
def classes(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(kafka_libs, tmp_path_factory.mktemp("classes"))


class Instance:
    """One process of the application, on a folder that it finds again after a kill."""

    def __init__(self, classes: str, bootstrap: str, state: Path, extra: Mapping[str, str]) -> None:
        settings = [f"{name}={value}" for name, value in {**APPLICATION_SETTINGS, **extra}.items()]
        self._command = [*JAVA, "-cp", classes, "WordCount", bootstrap, str(state), *settings]
        self._log = state.with_name(state.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])


class Reader:
    """Reads what is committed in the output topics, from the beginning on, in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.copies: list[str] = []
        self.counts: dict[str, list[int]] = defaultdict(list)
        self.count = 0
        self.grown = threading.Condition()
        self._is_over = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        names = ("copies", "counts")
        self._consumer.assign([TopicPartition(name, index, 0) for name in names for index in range(TOPICS[name])])
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self._take(message)

    def _take(self, message: Message) -> None:
        value = message.value().decode()
        if message.topic() == "copies":
            self.copies.append(value)
        else:
            self.counts[message.key().decode()].append(int(value))
        with self.grown:
            self.count += 1
            self.grown.notify()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()


@dataclass
class Scene:
    """The broker, the application and what they have been given."""

    broker: BrokerProcess
    instances: list[Instance]
    reader: Reader
    lines: list[str]
    chance: random.Random

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, "log_level": 0})
        for _ in range(count):
            words = self.chance.choices(WORDS, k=WORDS_PER_LINE)
            self.lines.append(" ".join([str(len(self.lines)), *words]))
            producer.produce("lines", self.lines[-1])
        assert producer.flush(WAIT_S) == 0

    @property
    def complete(self) -> int:
        """How many records there are when everything has been handled."""
        return len(self.lines) * (1 + WORDS_PER_LINE)

    def wait_for(self, count: int) -> None:
        with self.reader.grown:
            is_there = self.reader.grown.wait_for(lambda: self.reader.count >= count, WAIT_S)
        if not is_there:
            said = "\n".join(instance.last_words() for instance in self.instances)
            raise AssertionError(f"{self.reader.count} of {count} records after {WAIT_S} s:\n{said}")

    def judge(self) -> None:
        assert Counter(self.reader.copies) == Counter(self.lines)
        words = Counter(word for line in self.lines for word in line.split()[1:])
        wrong = [word for word in words if self.reader.counts[word] != list(range(1, words[word] + 1))]
        assert not wrong, {word: (words[word], self.reader.counts[word]) for word in wrong}
        assert self.reader.counts.keys() == words.keys()


Stage = Callable[..., Scene]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made: list[Scene] = []

    def set_up(classes: str, *, seed: int, instances: int = 1, **extra: str) -> Scene:
        folders = [tmp_path / f"state-{number}" for number in range(instances)]
        settings = {name.replace("_", "."): value for name, value in extra.items()}
        broker = BrokerProcess(tmp_path / "data", settings=BROKER_SETTINGS).start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(name, count) for name, count in TOPICS.items()]).values():
            future.result(WAIT_S)
        running = [Instance(classes, broker.bootstrap, folder, settings) for folder in folders]
        made.append(Scene(broker, running, Reader(broker.bootstrap), [], random.Random(seed)))
        for instance in running:
            instance.start()
        return made[-1]

    yield set_up
    for scene in made:
        for instance in scene.instances:
            instance.kill()
        scene.reader.close()
        scene.broker.close()


def run(scene: Scene, victims: str) -> None:
    """One round for each victim: an instance of the application (a), the broker (b), or both (c)."""
    for victim in victims:
        before = scene.reader.count
        scene.send(LINES_PER_ROUND)
        scene.wait_for(scene.chance.randint(before + 1, before + (scene.complete - before) // 2))
        instance = scene.chance.choice(scene.instances)
        if victim in "ac":
            instance.kill()
        if victim in "bc":
            scene.broker.kill()
            scene.broker.start()
        if victim in "ac":
            instance.start()
    scene.wait_for(scene.complete)
    scene.judge()


def test_word_count_with_kills(stage: Stage, classes: str, tool_runner: Any) -> None:
    scene = stage(classes, seed=1)
    run(scene, "aba")
    scene.instances[0].kill()
    application = ["--application-id", "word-count", "--input-topics", "lines", "--force"]
    reset = tool_runner.run("StreamsResetter", "--bootstrap-server", scene.broker.bootstrap, *application)
    assert reset.code == 0, reset
    assert "Done." in reset.out and reset.out.count("Topic: lines Partition:") == TOPICS["lines"]
    left = AdminClient({"bootstrap.servers": scene.broker.bootstrap}).list_topics(timeout=WAIT_S).topics
    assert not [name for name in left if name.startswith("word-count-")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("instances", [1, 2])
def test_word_count_with_many_kills(stage: Stage, classes: str, seed: int, instances: int) -> None:
    run(stage(classes, seed=seed, instances=instances), "aabacbabca")


@pytest.mark.slow
@pytest.mark.usefixtures("kafka_libs")  # without Java and Maven there are no older ones either
@pytest.mark.parametrize(
    ("version", "guarantee"),
    [("3.9.1", "exactly_once_v2"), ("2.8.2", "exactly_once_beta"), ("2.8.2", "exactly_once")],
)
def test_releases_that_tell_the_coordinator_themselves(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory, version: str, guarantee: str
) -> None:
    """They send AddPartitionsToTxn and keep their epoch from one transaction to the next."""
    libs = PROJECT / ".cache" / "kafka" / f"streams-{version}"
    subprocess.run([PROJECT / "scripts" / "fetch-kafka", libs, version, "kafka-streams"], check=True)
    classes = compiled(libs, tmp_path_factory.mktemp("classes"))
    run(stage(classes, seed=1, processing_guarantee=guarantee, cache_max_bytes_buffering="0"), "abacb")
