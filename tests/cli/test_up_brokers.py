"""`penstock up --brokers N`: several brokers, their watcher and the keeper, as a user sees them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.up import defaults
from penstock.testing.broker_process import BrokerProcess, BrokerProcessError, free_port
from penstock.testing.cluster_processes import UpCluster, UpProcess, is_alive, members, wait_for_members

Command = Callable[..., Any]

DEADLINE_S = 30.0
#: Far longer than any test waits: nothing here happens because a session has expired.
LONG_SESSION = {"zookeeper.session.timeout.ms": "60000"}
QUICK = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--brokers", "0"], "Invalid value for '--brokers'"),
        (["--brokers", "3", "--port", "65534"], "--port 65534: a port is a number from 0 to 65533"),
        (["--port", "65536"], "--port 65536: a port is a number from 0 to 65535"),
        (["--brokers", "3", "--set", "listeners=PLAINTEXT://:1"], "'penstock up' chooses listeners: leave it out"),
        (["--brokers", "2", "--set", "broker.id=7", "--set", "log.dir=x"], "chooses node.id and log.dirs"),
        (["--brokers", "2", "--set", "min.insync.replica=7"], "did you mean min.insync.replicas?"),
        (["--set", "zookeeper.connect=a:1"], "leave zookeeper.connect out, or run 'penstock broker'"),
    ],
)
def test_wrong_usage_is_named(command: Command, tmp_path: Path, arguments: list[str], message: str) -> None:
    outcome = command("up", "--data", str(tmp_path), *arguments)
    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_what_matters_has_three_replicas_where_it_can(brokers: int, replicas: str, in_sync: str) -> None:
    values = defaults(brokers)
    for topic in ("offsets.topic", "transaction.state.log"):
        assert values[f"{topic}.replication.factor"] == replicas
    assert values["transaction.state.log.min.isr"] == in_sync
    assert values.get("default.replication.factor", "1") == replicas
    assert values.get("min.insync.replicas", "1") == in_sync


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it does not happen"
        time.sleep(0.01)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[UpCluster]:
    with UpCluster(3, tmp_path / "data", settings={**LONG_SESSION, **QUICK}) as up:
        yield up


def create_topic(bootstrap: str, name: str, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(DEADLINE_S)


def write(bootstrap: str, topic: str, count: int, partitions: int, first: int = 0) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(first, first + count):
        producer.produce(
            topic,
            str(number),
            partition=number % partitions,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert not failed


def read(bootstrap: str, topic: str, count: int) -> set[int]:
    """As a member of a group, so that its coordinator is asked too."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"readers-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    found: set[int] = set()
    deadline_s = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.add(int(message.value() or b"-1"))
    consumer.close()
    return found


@pytest.mark.cluster
def test_three_brokers_serve_as_one(cluster: UpCluster) -> None:
    log = cluster.process.log_text()
    assert len(cluster.process.addresses) == 3
    assert [int(address.rpartition(":")[2]) for address in cluster.process.addresses] == [
        cluster.process.port + broker_id for broker_id in range(3)
    ]
    for broker_id, address in enumerate(cluster.process.addresses):
        assert members(address) == {0, 1, 2}
        assert f"broker {broker_id}: serving as process {cluster.pid(broker_id)}" in log
    create_topic(cluster.bootstrap, "orders", 6, 3)
    write(cluster.bootstrap, "orders", 600, 6)
    assert read(cluster.bootstrap, "orders", 600) == set(range(600))
    pids = [cluster.pid(broker_id) for broker_id in range(3)]
    cluster.stop()
    assert not any(is_alive(pid) for pid in pids)
    assert "Traceback" not in cluster.process.log_text()


@pytest.mark.cluster
def test_a_broker_that_dies_is_missed_at_once_and_comes_back(cluster: UpCluster) -> None:
    create_topic(cluster.bootstrap, "orders", 3, 3)
    write(cluster.bootstrap, "orders", 30, 3)
    for victim in range(3):
        before = cluster.pid(victim)
        cluster.kill(victim)
        others = [address for number, address in enumerate(cluster.process.addresses) if number != victim]
        wait_for_members(others, {0, 1, 2} - {victim}, DEADLINE_S)
        write(cluster.bootstrap, "orders", 30, 3, first=30 * (victim + 1))
        cluster.wait_ready()
        assert cluster.pid(victim) != before
        assert f"broker {victim} has ended by signal 9; it starts again in 1 s" in cluster.process.log_text()
    assert read(cluster.bootstrap, "orders", 120) == set(range(120))


@pytest.mark.cluster
def test_a_broker_that_cannot_come_back_is_tried_again(tmp_path: Path) -> None:
    with UpCluster(2, tmp_path / "data", settings={**LONG_SESSION, **QUICK}) as up:
        pid = up.pid(1)
        up.kill(1)
        wait_until(lambda: not is_alive(pid))
        with socket.create_server(("127.0.0.1", up.process.port + 1)):
            wait_until(lambda: "broker 1: cannot listen on" in up.process.log_text())
            wait_until(lambda: "broker 1 has ended with exit code 1; it starts again in 2 s" in up.process.log_text())
        up.wait_ready()
        up.stop()


@pytest.mark.cluster
def test_one_becomes_three_and_one_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, settings=QUICK) as one:
        create_topic(one.bootstrap, "orders", 2, 1)
        write(one.bootstrap, "orders", 10, 2)
        port = one.port
        one.kill()  # its session is left, and nobody can take that over
    with UpCluster(3, data, port=port, settings=QUICK) as three:
        assert read(three.bootstrap, "orders", 10) == set(range(10))
        write(three.bootstrap, "orders", 10, 2, first=10)
        three.stop()
    with BrokerProcess(data, port=port, settings=QUICK) as one:
        assert "also has the data of broker 1, 2, which is not started" in one.log_text()
        assert read(one.bootstrap, "orders", 20) == set(range(20))


@pytest.mark.cluster
def test_the_brokers_end_with_their_watcher(cluster: UpCluster) -> None:
    pids = [cluster.pid(broker_id) for broker_id in range(3)]
    cluster.process.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    cluster.start()
    assert {cluster.pid(broker_id) for broker_id in range(3)}.isdisjoint(pids)


@pytest.mark.cluster
def test_a_second_signal_ends_everything_at_once(cluster: UpCluster) -> None:
    pids = [cluster.pid(broker_id) for broker_id in range(3)]
    for broker_id in range(3):
        cluster.pause(broker_id)  # none of them can stop by itself
    os.kill(cluster.process.pid, signal.SIGINT)
    os.kill(cluster.process.pid, signal.SIGTERM)
    assert cluster.process.wait_for_end() == 0
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.cluster
def test_a_port_that_is_taken_stops_the_start(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port + 1)):
        up = UpProcess(3, tmp_path / "data", port=port)
        with pytest.raises(BrokerProcessError) as refused:
            up.start()
    assert f"penstock: broker 1: cannot listen on 127.0.0.1:{port + 1}: " in str(refused.value)
    assert "penstock: broker 1 did not start, so nothing does" in str(refused.value)
    assert "Traceback" not in up.log_text()
    pids = [int(found) for found in re.findall(r"serving as process (\d+)", up.log_text())]
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.cluster
def test_one_folder_is_for_one_cluster(cluster: UpCluster) -> None:
    for brokers in ("1", "3"):
        command = [sys.executable, "-m", "penstock.cli", "up", "--brokers", brokers, "--port", "0"]
        twice = subprocess.run(
            [*command, "--data", str(cluster.process.data)], capture_output=True, text=True, check=False, timeout=60
        )
        assert twice.returncode == 1
        assert f"{cluster.process.data} is in use by another process" in twice.stderr
    assert members(cluster.process.addresses[0]) == {0, 1, 2}


@pytest.mark.cluster
def test_ports_that_were_chosen_are_kept_when_a_broker_comes_back(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli", "up", "--brokers", "2", "--port", "0", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            addresses = re.findall(r"127\.0\.0\.1:\d+", process.stdout.readline().partition(" metrics")[0])
            assert len(set(addresses)) == 2
            pid = 0
            while not pid:
                found = re.search(r"broker 1: serving as process (\d+)", process.stderr.readline())
                pid = int(found[1]) if found else 0
            os.kill(pid, signal.SIGKILL)
            wait_for_members(addresses[:1], {0}, DEADLINE_S)
            wait_for_members(addresses, {0, 1}, DEADLINE_S)
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
