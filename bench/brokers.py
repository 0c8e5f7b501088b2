"""The brokers that are measured: how each is set up, started and stopped, and what it uses.

Both keep their own defaults. Apache Kafka runs in KRaft mode with one GiB of heap and the garbage-collector flags that
its own scripts pass.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from bench import machine
from bench.load import MeasurementFailed
from penstock.testing.apache_kafka import ApacheKafka, ApacheKafkaError, NoApacheKafka, find_jars, version_of
from penstock.testing.broker_process import free_port

ROOT = Path(__file__).resolve().parent.parent
JAVA_FLAGS = ["-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
STOP_WITHIN_S = 60


def _installed(environment: Mapping[str, str]) -> dict[str, str]:
    """An installed program keeps its compiled bytecode, whatever whoever measures it does with his own."""
    return {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Broker(ABC):
    """One broker in a folder of its own; it can be started and stopped several times."""

    name: str
    flush_always: dict[str, str]  # the topic setting that makes every write wait for the disk

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.settings = settings or {}
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True)
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Choose the port and make the folder ready for the first start."""

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
                env=_installed(os.environ),
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
        self.port = free_port()
        self.data.mkdir()

    def _command(self) -> list[str]:
        program = Path(sys.executable).with_name("penstock")
        settings = [word for name, value in self.settings.items() for word in ("--set", f"{name}={value}")]
        return [str(program), "up", "--port", str(self.port), "--data", str(self.data), *settings]


class Kafka(Broker):
    name = "Apache Kafka"
    flush_always = {"flush.messages": "1"}

    def _prepare(self) -> None:
        self._kafka = ApacheKafka(find_jars(), self.home, settings=self.settings, java_flags=JAVA_FLAGS)
        try:
            self._kafka.format()
        except ApacheKafkaError as problem:
            raise MeasurementFailed(str(problem)) from None
        self.port = self._kafka.port

    def _command(self) -> list[str]:
        return self._kafka.command()


def why_no_kafka() -> str | None:
    """What is missing to run Apache Kafka here, after fetching its jars if they can be had; None if nothing is."""
    try:
        find_jars()
    except (NoApacheKafka, ApacheKafkaError) as missing:
        return str(missing)
    return None


def kafka_version() -> str:
    return version_of(find_jars())
