"""`penstock up --secure` with three brokers: one is killed while clients write over TLS with a login; and a token
that is made at one broker logs in at all of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.base.properties import parse_properties
from penstock.columnar import read
from penstock.sasl.jaas_entries import SCRAM_MODULE
from penstock.testing.broker_process import free_port

pytestmark = pytest.mark.cluster

BROKERS, MESSAGES = 3, 3000
DEADLINE_S = 60


@contextmanager
def secure_cluster(folder: Path) -> Iterator[Path]:
    """The brokers' log; the clients' settings are in the data folder."""
    log = folder / "log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-m", "penstock.cli", "up", "--secure", "--brokers", str(BROKERS)]
    command += ["--port", str(free_port()), "--data", str(folder / "data"), "--set", "metrics.listener="]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        give_up_s = time.monotonic() + DEADLINE_S
        while "penstock ready" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up_s, log.read_text()
            time.sleep(0.05)
        yield log
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def client_settings(folder: Path) -> dict[str, str]:
    return parse_properties((folder / "data" / "security" / "client.properties").read_text()) | {"log_level": "0"}


def test_a_killed_broker_costs_nothing(tmp_path: Path) -> None:
    with secure_cluster(tmp_path) as log:
        settings = client_settings(tmp_path)
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("orders", BROKERS, BROKERS)])["orders"].result(DEADLINE_S)
        failed: list[object] = []
        producer = Producer(settings | {"acks": "all", "enable.idempotence": "true"})
        for number in range(MESSAGES):
            producer.produce(
                "orders", str(number).encode(), on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0)
            if number == MESSAGES // 2:
                os.kill(int(re.findall(r"serving as process (\d+)", log.read_text())[-1]), signal.SIGKILL)
        assert producer.flush(DEADLINE_S) == 0
        assert failed == []
        assert read_all(settings) == {str(number).encode() for number in range(MESSAGES)}
        assert count_with_token(tmp_path, settings) == MESSAGES
        key = (tmp_path / "data" / "security" / "broker.pem").stat().st_mode
        assert key & 0o077 == 0
        password = settings["sasl.password"]
        assert password not in log.read_text()


def count_with_token(folder: Path, settings: dict[str, str]) -> int:
    """The messages of all partitions, which are led by all brokers."""
    config = str(folder / "data" / "security" / "client.properties")
    command = [sys.executable, "-m", "penstock.cli", "token", "create", "--json", "--client-config", config]
    made = subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    token = json.loads(made.stdout)
    login = f'{SCRAM_MODULE} required username="{token["id"]}" password="{token["hmac"]}" tokenauth="true";'
    with_token = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": settings["ssl.ca.location"],
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": login,
    }
    return int(read(settings["bootstrap.servers"], "orders", settings=with_token).read_all().num_rows)


def read_all(settings: dict[str, str]) -> set[bytes]:
    consumer = Consumer(settings | {"group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found: set[bytes] = set()
    give_up_s = time.monotonic() + DEADLINE_S
    while len(found) < MESSAGES and time.monotonic() < give_up_s:
        found.update(message.value() for message in consumer.consume(500, 1.0) if message.error() is None)
    consumer.close()
    return found
