"""The brokers that are measured: how each is set up, started and stopped, and what it uses.

Both keep their own defaults. Apache Kafka runs in KRaft mode with one GiB of heap and the garbage-collector flags that
its own scripts pass; nothing of it lies in this repository: scripts/fetch-kafka puts its jars into .cache/kafka/libs.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from abc import ABC, abstractmethod
from pathlib import Path

from bench import machine
from bench.load import MeasurementFailed

ROOT = Path(__file__).resolve().parent.parent
KAFKA_LIBS = ROOT / ".cache" / "kafka" / "libs"
FETCH_KAFKA = ROOT / "scripts" / "fetch-kafka"
JAVA_FLAGS = ["-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
STOP_WITHIN_S = 60

KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Broker(ABC):
    """One broker in a folder of its own; it can be started and stopped several times."""

    name: str
    flush_always: dict[str, str]  # the topic setting that makes every write wait for the disk

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True)
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None: ...

    @abstractmethod
    def _command(self) -> list[str]: ...

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert self._process is None
        with (self.home / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.home,
                start_new_session=True,
            )

    def stop(self) -> None:
        """A clean stop; a kill if that takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def last_words(self) -> str:
        """The end of what it printed, for when it does not do what it should."""
        return "\n".join((self.home / "output.txt").read_text(errors="replace").splitlines()[-15:])

    def cpu_s(self) -> float:
        return machine.cpu_s_of_tree(self.pid)

    def memory_mb(self) -> float:
        return machine.memory_mb_of_tree(self.pid)


class Penstock(Broker):
    name = "Penstock"
    flush_always = {"flush.mode": "always"}

    def _prepare(self) -> None:
        self.data.mkdir()

    def _command(self) -> list[str]:
        program = Path(sys.executable).with_name("penstock")
        return [str(program), "up", "--port", str(self.port), "--data", str(self.data)]


class Kafka(Broker):
    name = "Apache Kafka"
    flush_always = {"flush.messages": "1"}

    def _prepare(self) -> None:
        text = KAFKA_PROPERTIES.format(port=self.port, controller_port=free_port(), data=self.data)
        self._properties.write_text(text)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        command = ["java", "-cp", f"{KAFKA_LIBS}/*", "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*command, "-t", cluster_id, "-c", str(self._properties)], capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            raise MeasurementFailed(f"Apache Kafka could not format its folder:\n{done.stdout}{done.stderr}")

    def _command(self) -> list[str]:
        return ["java", *JAVA_FLAGS, "-cp", f"{KAFKA_LIBS}/*", "kafka.Kafka", str(self._properties)]

    @property
    def _properties(self) -> Path:
        return self.home / "server.properties"


def why_no_kafka() -> str | None:
    """What is missing to run Apache Kafka here, after fetching its jars if they can be had; None if nothing is."""
    if shutil.which("java") is None:
        return "there is no java"
    if not any(KAFKA_LIBS.glob("kafka_*.jar")) and os.access(FETCH_KAFKA, os.X_OK):
        subprocess.run([str(FETCH_KAFKA)], cwd=ROOT, timeout=600, stdout=subprocess.DEVNULL)
    if not any(KAFKA_LIBS.glob("kafka_*.jar")):
        return "its jars are not in .cache/kafka/libs and could not be fetched"
    return None


def kafka_version() -> str:
    names = [path.stem for path in KAFKA_LIBS.glob("kafka_*.jar")]
    return names[0].rpartition("-")[2] if names else ""
