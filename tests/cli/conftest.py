"""A running broker for the commands, and ways to run a command: in this process, or as a real program.

`PENSTOCK_TEST_BOOTSTRAP=HOST:PORT` runs the marked tests against a broker that is already there, of any make.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.cli.main import run
from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.broker_process import BrokerProcess

#: For every broker of these tests: quick rebalances, and transactions that write without being verified, so that a test
#: can leave one hanging.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.partition.verification.enable": "false",
}


@dataclass
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str
    out_bytes: bytes

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Command = Callable[..., Outcome]


@pytest.fixture
def command(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command line in this process: `command("topic", "list", stdin=b"…")`."""
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    monkeypatch.delenv("PENSTOCK_CLIENT_CONFIG", raising=False)

    def call(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return Outcome(code, captured.out.decode(errors="replace"), captured.err.decode(), captured.out)

    return call


@pytest.fixture
def on_broker(command: Command, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command line in this process, against the running broker.

    Producers are not idempotent here unless a test says so: librdkafka takes half a second to get a producer id.
    """
    settings = tmp_path / "client.properties"
    settings.write_text("enable.idempotence=false\n")
    monkeypatch.setenv("PENSTOCK_CLIENT_CONFIG", str(settings))
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", bootstrap)
    return command


@pytest.fixture
def topic(on_broker: Command) -> Iterator[str]:
    """A fresh topic with two partitions."""
    name = f"cli-{uuid4().hex[:12]}"
    assert on_broker("topic", "create", name, "--partitions", "2").code == 0
    yield name
    on_broker("topic", "delete", name, "--yes", "--if-exists")


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that runs as long as the tests do."""
    if given := os.environ.get("PENSTOCK_TEST_BOOTSTRAP"):
        yield given
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka that runs as long as the tests do."""
    with ApacheKafka(kafka_libs, tmp_path_factory.mktemp("kafka"), settings=SETTINGS) as kafka:
        yield kafka.bootstrap
