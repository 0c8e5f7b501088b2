"""Apache Kafka as a real process, a node in KRaft mode: the reference that tests and benchmarks compare with.

    with ApacheKafka(find_jars(), tmp_path / "kafka", settings={"num.partitions": "2"}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

A node is alone unless it is given a quorum; `apache_kafka_cluster` makes several that belong together.

Nothing of Apache Kafka lies in this repository: `scripts/fetch-kafka` brings its jars, which need Java to run. The node
gets a folder of its own, which it formats before its first start, and ports that stay the same over restarts. Its JVM
is a small one unless other flags are given. Whatever goes wrong is reported with the end of what the node printed.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.broker_process import free_port
from penstock.testing.raw_client import ConnectionEnded, RawClient
from penstock.wire.messages.k03_metadata import MetadataRequest

PROJECT = Path(__file__).resolve().parents[3]
FETCH_TIMEOUT_S = 600
FORMAT_TIMEOUT_S = 60
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
START_TRIES = 3
LOG_LINES_SHOWN = 40

#: A JVM for short runs beside other things: little memory, of which the log cleaner takes 128 MB at the start, and no
#: time lost with compiling well.
SMALL_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1")
#: What one node alone needs, because everything else would wait for more of them.
ONE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class NoApacheKafka(Exception):
    """Apache Kafka cannot be run here; the text says what is missing."""


class ApacheKafkaError(AssertionError):
    """The node did not do what was asked of it; the text ends with what it printed."""


def find_jars() -> Path:
    """The folder with Apache Kafka's jars: PENSTOCK_KAFKA_LIBS, or .cache/kafka/libs, fetched if need be."""
    named = os.environ.get("PENSTOCK_KAFKA_LIBS")
    if named is not None:
        if not any(Path(named).glob("kafka-clients-*.jar")):
            raise ApacheKafkaError(f"PENSTOCK_KAFKA_LIBS is {named}, which has no Kafka jars")
        return Path(named)
    if shutil.which("java") is None:
        raise NoApacheKafka("there is no java")
    script = PROJECT / "scripts" / "fetch-kafka"
    if not script.exists():
        raise NoApacheKafka("outside a checkout PENSTOCK_KAFKA_LIBS has to name the folder with its jars")
    fetched = subprocess.run([script], capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S)
    if fetched.returncode != 0:
        raise NoApacheKafka(fetched.stderr.strip())
    return PROJECT / ".cache" / "kafka" / "libs"


def version_of(jars: Path) -> str:
    """The version of Apache Kafka in that folder, such as 4.3.1."""
    return max(path.stem for path in jars.glob("kafka_*.jar")).rpartition("-")[2]


class ApacheKafka:
    """One node. `settings` go over `ONE_NODE`; `features` are `name=level` for the format of its folder.

    `more_listeners`, such as `SSL://localhost:9093`, stand beside the plain one; what they need is in `settings`.
    `quorum` has the port on which each node, this one included, listens as a controller; without it the node is alone.
    """

    def __init__(
        self,
        jars: Path,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
        more_listeners: Sequence[str] = (),
        java_flags: Sequence[str] = SMALL_JVM,
        node_id: int = 0,
        cluster_id: str | None = None,
        quorum: Mapping[int, int] | None = None,
    ) -> None:
        self.jars = jars
        self.folder = folder
        self.data = folder / "data"
        self.host = "127.0.0.1"
        self.port = 0
        self.node_id = node_id
        self.cluster_id = cluster_id or new_cluster_id()
        self._quorum = quorum
        self._settings = {**(ONE_NODE if quorum is None else {}), **(settings or {})}
        self._features = features
        self._more_listeners = more_listeners
        self._java = ["java", *java_flags, "-cp", f"{jars}/*"]
        self._properties = folder / "server.properties"
        self._log = folder / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        """The command line that starts the node, once it is formatted."""
        return [*self._java, "kafka.Kafka", str(self._properties)]

    def format(self) -> None:
        """Choose ports, write the settings and make a fresh folder for the data."""
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.data, ignore_errors=True)
        self.port = free_port()
        quorum = self._quorum or {self.node_id: free_port()}
        controller = f"CONTROLLER://127.0.0.1:{quorum[self.node_id]}"
        rows = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in quorum.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join((f"PLAINTEXT://{self.bootstrap}", controller, *self._more_listeners)),
            "log.dirs": str(self.data),
            **self._settings,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
        features = [word for feature in self._features for word in ("--feature", feature)]
        tool = [*self._java, "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(self._properties)]
        done = subprocess.run([*tool, *features], capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise ApacheKafkaError(f"Apache Kafka could not format its folder:\n{done.stdout}{done.stderr}")

    def start(self) -> Self:
        """Start it, formatted first if it never was, and wait until it can serve; raises ApacheKafkaError."""
        if self.is_running:
            raise ApacheKafkaError("Apache Kafka is running already")
        is_new = not self.data.exists()
        for left in reversed(range(START_TRIES if is_new else 1)):
            if is_new:
                self.format()
            self.launch()
            if self.serves():
                break
            # Somebody may have taken one of the ports meanwhile; it does not say so.
            self.kill()
            if not left:
                raise ApacheKafkaError(f"Apache Kafka did not start:\n{self.last_words()}")
        return self

    def stop(self) -> None:
        """Ask it to stop and wait until it has; a kill if that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash of the process does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log_text(self) -> str:
        """What it printed, over all its starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def last_words(self) -> str:
        """The end of what it printed."""
        return "\n".join(self.log_text().splitlines()[-LOG_LINES_SHOWN:])

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def launch(self) -> None:
        """Start its process, formatted already, and do not wait for it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def serves(self, others: Collection[int] = ()) -> bool:
        """Whether it can soon serve, and knows of itself and these others: it listens some time before."""
        assert self._process is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if {self.node_id, *others} <= self._known_brokers():
                return self.is_running
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            return False
        return False

    def _known_brokers(self) -> set[int]:
        try:
            with RawClient(self.host, self.port) as client:
                return {broker.node_id for broker in client.call(MetadataRequest(topics=[]), 1).brokers}
        except (ConnectionEnded, OSError):
            return set()


def new_cluster_id() -> str:
    """An id that Kafka takes for a cluster."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
