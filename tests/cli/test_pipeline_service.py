"""A folder of pipelines as a service, with real processes that stand in for Spark's."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.pipeline_status import gather
from penstock.pipelines.service import Doing

PROGRAM = Path(__file__).with_name("folder_service_program.py")
WAIT_S_MAX = 30.0
PIPELINE = """\
name: {name}
sources: {{orders: {{topic: orders, format: string}}}}
sinks: {{to_topic: {{from: orders, topic: copies, format: string}}}}
{remark}
"""


class Running:
    """A service as a process, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        command = [sys.executable, str(PROGRAM), "serve", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self._lines.put(line.rstrip("\n"))

    def until(self, part: str) -> str:
        """The next line with this in it."""
        deadline_s = time.monotonic() + WAIT_S_MAX
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, deadline_s - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"nobody said {part!r}, but:\n" + "\n".join(self.said)) from None
            self.said.append(line)
            if part in line:
                return line

    def write(self, file: str, name: str, remark: str = "") -> None:
        """As editors do: the old file is replaced by a whole new one."""
        new = self.folder / f".{file}.new"
        new.write_text(PIPELINE.format(name=name, remark=remark))
        new.replace(self.folder / file)

    def doing(self, name: str) -> Doing | None:
        return next(
            (line.report.doing for line in gather(self.folder / "state") if line.name == name and line.report), None
        )


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    running.process.terminate()
    assert running.process.wait(WAIT_S_MAX) == 0


def pid_in(line: str) -> int:
    return int(line.rsplit(" ", 1)[1])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while is_alive(pid):
        assert time.monotonic() < deadline_s, f"process {pid} is left"
        threading.Event().wait(0.02)


def test_files_come_change_and_go(service: Running) -> None:
    service.write("a.yaml", "a")
    first = pid_in(service.until("[a] runs version 1"))
    service.write("a.yaml", "a", "# version 2")
    service.until("[a.yaml] has changed: checking it")
    second = pid_in(service.until("[a] runs version 2"))
    until_gone(first)
    (service.folder / "a.yaml").unlink()
    service.until("[a.yaml] has stopped")
    until_gone(second)


def test_a_function_that_changes_starts_its_pipeline_anew(service: Running) -> None:
    service.until("there are no pipelines (*.yaml) in this folder")
    module = service.folder / "project" / "steps.py"
    module.parent.mkdir()
    module.write_text("def enrich(orders): return orders")
    service.write("a.yaml", "a", 'steps: {rich: {python: "project.steps:enrich", from: orders}}')
    service.write("b.yaml", "b")
    pids = {
        line.split()[0]: pid_in(line) for line in (service.until("runs version 1"), service.until("runs version 1"))
    }
    module.write_text("def enrich(orders): return orders.distinct()")
    service.until("[a.yaml] has changed: checking it")
    service.until("[a] runs version 1")
    until_gone(pids["[a]"])
    assert is_alive(pids["[b]"])


def test_broken_changes_keep_the_old_one_running(service: Running) -> None:
    service.write("a.yaml", "a")
    pid = pid_in(service.until("[a] runs version 1"))
    service.write("a.yaml", "a", "sinkz: {}")
    service.until("the change cannot be read, the old one keeps running")
    service.write("a.yaml", "a", "# refused")
    service.until("the change is broken, the old one keeps running: line 3: sinks.out: no column 'amuont'")
    assert is_alive(pid)
    deadline_s = time.monotonic() + WAIT_S_MAX
    while service.doing("a") is not Doing.RUNNING:  # its status is written when it has been said
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    service.write("a.yaml", "a", "# version 3")
    service.until("[a] runs version 3")


def test_a_failed_one_starts_again_and_again(service: Running) -> None:
    service.write("a.yaml", "a", "# fails")
    for pause in ("0.1", "0.2", "0.4", "0.4"):
        service.until(f"has failed and starts again in {pause} s: no broker answers")
    service.write("a.yaml", "a", "# finishes")
    service.until("[a.yaml] has finished")
    service.write("a.yaml", "a")
    service.until("[a] runs version 1")


def test_a_second_service_of_the_folder_is_refused(service: Running) -> None:
    service.write("a.yaml", "a")
    service.until("[a] runs")
    second = subprocess.run(
        [sys.executable, str(PROGRAM), "serve", str(service.folder)], capture_output=True, text=True
    )
    assert "runs already" in second.stderr or "already" in second.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_the_service_ends(tmp_path: Path, number: signal.Signals) -> None:
    service = Running(tmp_path)
    service.write("a.yaml", "a")
    service.write("b.yaml", "b")
    lines = [service.until("runs version 1"), service.until("runs version 1")]
    os.kill(service.process.pid, number)
    assert service.process.wait(WAIT_S_MAX) == (0 if number is signal.SIGINT else -number)
    for line in lines:
        until_gone(pid_in(line))
    assert gather(tmp_path / "state") == []
