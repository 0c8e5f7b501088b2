"""Apache Kafka's own programs, and brokers to run them against."""

from __future__ import annotations

import base64
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.broker_process import BrokerProcess

HERE = Path(__file__).parent
JAVA = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
TOOL_TIMEOUT_S = 60
PROGRAM_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
#: Members and coordinators that hurry, so that tests do not wait for them.
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}
#: Where the tools live; ConfigCommand is the last one still in Scala.
PACKAGES = {
    "ConfigCommand": "kafka.admin",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group",
    "ReassignPartitionsCommand": "org.apache.kafka.tools.reassign",
}


@dataclass(frozen=True)
class Outcome:
    """What a tool did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class ToolRunner:
    """A JVM that runs one tool after the other (ToolRunner.java). A tool that hangs is ended with it."""

    def __init__(self, libs: Path) -> None:
        self._process = subprocess.Popen(
            [*JAVA, "-cp", f"{libs}/*", str(HERE / "ToolRunner.java")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def run(self, tool: str, *arguments: str | Path, stdin: str = "") -> Outcome:
        name = f"{PACKAGES.get(tool, 'org.apache.kafka.tools')}.{tool}"
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join([name, _packed(stdin), *(_packed(str(word)) for word in arguments)]) + "\n")
        self._process.stdin.flush()
        try:
            answer = self._answers.get(timeout=TOOL_TIMEOUT_S)
        except queue.Empty:
            self._process.kill()
            raise AssertionError(f"{tool} {' '.join(map(str, arguments))} took more than {TOOL_TIMEOUT_S} s") from None
        assert answer, f"the JVM ended while it ran {name}"
        code, out, err = answer.rstrip("\n").split("\t")
        return Outcome(int(code), _unpacked(out), _unpacked(err))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._answers.put(line)
        self._answers.put("")


def _packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _unpacked(text: str) -> str:
    return base64.b64decode(text).decode()


Tool = Callable[..., Outcome]
JavaProgram = Callable[[str, str], str]


@pytest.fixture(scope="session")
def quick_settings() -> dict[str, str]:
    return dict(QUICK)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that all tests share: each uses topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("kafka-tools") / "data", settings=QUICK) as broker:
        yield broker


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module with `ON_APACHE_KAFKA_TOO` is run there as well in the long form: it expects what Kafka does."""
    if getattr(metafunc.module, "ON_APACHE_KAFKA_TOO", False) and "bootstrap" in metafunc.fixturenames:
        brokers = ["penstock", pytest.param("apache-kafka", marks=pytest.mark.slow)]
        metafunc.parametrize("bootstrap", brokers, indirect=True, scope="session")


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the broker that the test is about."""
    if getattr(request, "param", "penstock") == "apache-kafka":
        address: str = request.getfixturevalue("apache_kafka")
        return address
    broker: BrokerProcess = request.getfixturevalue("broker")
    return broker.bootstrap


@pytest.fixture(scope="session")
def tool_runner(kafka_libs: Path) -> Iterator[ToolRunner]:
    runner = ToolRunner(kafka_libs)
    yield runner
    runner.close()


@pytest.fixture
def tool(tool_runner: ToolRunner, bootstrap: str) -> Tool:
    """Runs a tool on the broker: `tool("TopicCommand", "--list")`."""

    def run(name: str, *arguments: str | Path, stdin: str = "") -> Outcome:
        return tool_runner.run(name, *arguments, "--bootstrap-server", bootstrap, stdin=stdin)

    return run


@pytest.fixture
def topic(tool: Tool) -> str:
    """A fresh topic with two partitions."""
    name = f"tools-{uuid4().hex[:12]}"
    created = tool("TopicCommand", "--create", "--topic", name, "--partitions", "2")
    assert created == Outcome(0, f"Created topic {name}.\n", created.err)
    return name


@pytest.fixture
def java_lines(kafka_libs: Path) -> Iterator[Callable[..., Iterator[str]]]:
    """Starts a class that runs until it is stopped, and gives the lines it prints; it ends with the test."""
    started: list[tuple[subprocess.Popen[str], threading.Timer]] = []

    def start(*command: str) -> Iterator[str]:
        process = subprocess.Popen(
            [*JAVA, "-cp", f"{kafka_libs}/*", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        limit = threading.Timer(TOOL_TIMEOUT_S, process.kill)
        limit.start()
        started.append((process, limit))
        assert process.stdout is not None
        return iter(process.stdout)

    yield start
    for process, limit in started:
        limit.cancel()
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def java_program(kafka_libs: Path) -> JavaProgram:
    """Runs one of the programs in this folder on a broker, and gives what it printed."""

    def run(name: str, bootstrap: str) -> str:
        program = [*JAVA, "-cp", f"{kafka_libs}/*", str(HERE / f"{name}.java"), bootstrap]
        try:
            result = subprocess.run(program, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            printed = (error.stdout or b"").decode()
            raise AssertionError(f"{name} took more than {PROGRAM_TIMEOUT_S} s; it printed\n{printed}") from error
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


def one_node(libs: Path, folder: Path) -> ApacheKafka:
    """Apache Kafka with the settings that the broker of ours has."""
    # Without this feature Kafka sets no min.insync.replicas of its own accord.
    return ApacheKafka(libs, folder, settings=QUICK, features=["eligible.leader.replicas.version=0"])


@pytest.fixture(scope="session")
def apache_kafka(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka that all tests share."""
    with one_node(kafka_libs, tmp_path_factory.mktemp("apache-kafka")) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def fresh_apache_kafka(kafka_libs: Path, tmp_path: Path) -> Iterator[str]:
    """The address of an Apache Kafka that has nothing in it."""
    with one_node(kafka_libs, tmp_path / "apache-kafka") as kafka:
        yield kafka.bootstrap
