"""`penstock pipeline up` with two real pipelines: they start one after the other, change, are broken, and stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.doctor_checks import OK, check_java
from penstock.cli.pipeline_status import gather
from penstock.pipelines.status import State, read_status

WAIT_S_MAX = 240.0
SMALL = ("--master", "local[2]", "--conf", "spark.driver.extraJavaOptions=-Xss4m -XX:TieredStopAtLevel=1")
PIPELINE = """\
name: {name}
sources: {{words: {{topic: {source}, format: string}}}}
steps: {{said: "{sql}"}}
sinks: {{out: {{from: said, topic: {target}, format: string}}}}
"""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(check_java().status != OK, reason="NOT TESTED WITH SPARK: there is no Java 17"),
]


def until(condition: Callable[[], bool], what: str, said: Path) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} did not happen:\n{said.read_text()}"
        time.sleep(0.1)


def processes_of(folder: Path) -> list[str]:
    """Command lines of living processes that name this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text:
            found.append(text)
    return found


class Heard:
    """What has come out of the pipelines so far."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        self.values: list[str] = []
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._consumer.subscribe([topic])

    def has(self, *values: str) -> bool:
        self.values += [(each.value() or b"").decode() for each in self._consumer.consume(100, 0.5) if not each.error()]
        return sorted(self.values) == sorted(values)

    def close(self) -> None:
        self._consumer.close()


def test_two_pipelines_from_start_to_stop(tmp_path: Path, bootstrap: str) -> None:
    folder, state, said = tmp_path / "pipelines", tmp_path / "state", tmp_path / "said"
    folder.mkdir()
    source, target = (f"up-{uuid4().hex[:12]}" for _ in range(2))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1) for name in (source, target)]).values():
        made.result(30)
    producer, heard = Producer({"bootstrap.servers": bootstrap}), Heard(bootstrap, target)

    def write(name: str, sql: str) -> None:
        new = folder / f".{name}.new"
        new.write_text(PIPELINE.format(name=name, source=source, target=target, sql=sql))
        new.replace(folder / f"{name}.yaml")

    def pid_of(name: str) -> int | None:
        status = read_status(state, name)
        return status.pid if status is not None and status.state is State.RUNNING else None

    for name in ("a", "b"):
        write(name, f"select concat('{name}1 ', value) as value from words")
    command = [sys.executable, "-m", "penstock.cli", "pipeline", "up", str(folder), "--state", str(state), *SMALL]
    with said.open("w") as output:
        service = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap}
        )
    try:
        producer.produce(source, b"x")
        assert producer.flush(30) == 0
        until(lambda: heard.has("a1 x", "b1 x"), "both run", said)
        told = said.read_text()
        assert told.index("[a] ") < told.index("[b.yaml] starting")  # one after the other
        assert "failed" not in told
        first, other = pid_of("a"), pid_of("b")
        write("a", "select concat('a2 ', value) as value from words")
        until(lambda: pid_of("a") not in (None, first), "the change", said)
        second = pid_of("a")
        write("b", "select concat('b2 ', walue) as value from words")
        until(lambda: "the change is broken, the old one keeps running" in said.read_text(), "the broken change", said)
        producer.produce(source, b"y")
        assert producer.flush(30) == 0
        until(lambda: heard.has("a1 x", "b1 x", "a2 y", "b1 y"), "each goes on where it was", said)
        assert (pid_of("a"), pid_of("b")) == (second, other)
        service.send_signal(signal.SIGTERM)
        assert service.wait(WAIT_S_MAX) == 0
    finally:
        service.kill()
        service.wait()
        heard.close()
    assert processes_of(folder) == []
    assert {line.name: line.status.state for line in gather(state) if line.status} == {
        "a": State.STOPPED,
        "b": State.STOPPED,
    }
