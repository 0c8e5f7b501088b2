"""A broker that cannot start says why in one line and ends with an exit code."""

from __future__ import annotations

import socket
import subprocess

import pytest

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.pytest_plugin import StartPenstock

from .client import Message
from .confluent_client import ConfluentClient

pytestmark = pytest.mark.clients


def attempt(broker: BrokerProcess) -> tuple[int, list[str]]:
    """Run the command that starts this broker to its end: exit code and what it said."""
    done = subprocess.run(broker.command(), capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def test_a_second_process_on_the_same_folder_is_refused(start_penstock: StartPenstock) -> None:
    first = start_penstock()
    second = BrokerProcess(first.data)
    code, said = attempt(second)
    assert code == 1
    assert str(first.data) in said[-1] and "another process" in said[-1], said
    assert "Traceback" not in "\n".join(said)
    client = ConfluentClient(first.bootstrap)
    client.produce("still-served", [Message(b"yes")])
    assert client.consume("still-served", 1)[0].value == b"yes"


def test_a_folder_is_free_again_after_a_kill(start_penstock: StartPenstock) -> None:
    first = start_penstock()
    first.kill()
    second = start_penstock(data=first.data)
    assert second.is_running


def test_a_port_in_use_is_named(start_penstock: StartPenstock) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = start_penstock()
        broker.stop()
        broker.port = port
        code, said = attempt(broker)
    assert code == 1
    assert f"127.0.0.1:{port}" in said[-1] and "--port" in said[-1], said
    assert "Traceback" not in "\n".join(said)
    broker.port = 0
    broker.start()


def test_a_folder_of_another_cluster_is_refused(start_penstock: StartPenstock) -> None:
    one, other = start_penstock(), start_penstock()
    one.stop()
    other.stop()
    meta = "logs/meta.properties"
    (one.data / meta).write_bytes((other.data / meta).read_bytes())
    code, said = attempt(one)
    assert code == 1
    assert "belongs to cluster" in said[-1] and str(one.data) in said[-1], said
