"""Spark's own cluster manager on one machine, from the pip package: a master and workers, each a process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from penstock.testing.broker_process import free_port

START_S_MAX = 120.0
HOST = "127.0.0.1"


class StandaloneCluster:
    """`with StandaloneCluster(folder, workers=2, environment=…) as cluster: … cluster.master …`.

    With `many_hosts` each worker has an address of its own, and Spark takes them for different machines.
    """

    def __init__(self, folder: Path, *, workers: int, environment: Mapping[str, str], many_hosts: bool = False) -> None:
        self._many_hosts = many_hosts
        self._folder = folder
        self._workers = workers
        self._environment = {**os.environ, "SPARK_LOCAL_IP": HOST, "SPARK_NO_DAEMONIZE": "1", **environment}
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start("master", "master.Master", HOST, "--port", str(self._port), "--webui-port", str(free_port()))
            self._wait_for("master", "New state: ALIVE", 1)
            for number in range(self._workers):
                options = [
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--webui-port",
                    str(free_port()),
                    "--work-dir",
                    str(self._folder),
                ]
                host = f"127.0.0.{number + 1}" if self._many_hosts else HOST
                self._start(f"worker-{number}", "worker.Worker", host, *options, self.master)
            self._wait_for("master", "Registering worker", self._workers)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process that was started, and what they started."""
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(START_S_MAX)

    def _start(self, name: str, program: str, host: str, *options: str) -> None:
        command = [Path(pyspark.__file__).parent / "bin" / "spark-class", f"org.apache.spark.deploy.{program}"]
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*map(str, command), "--host", host, *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._environment, "SPARK_LOCAL_IP": host},
                start_new_session=True,
            )
        self._processes.append(process)

    def _wait_for(self, name: str, words: str, times: int) -> None:
        log, deadline_s = self._folder / f"{name}.log", time.monotonic() + START_S_MAX
        while (text := log.read_text(errors="replace")).count(words) < times:
            assert time.monotonic() < deadline_s and self._processes[-1].poll() is None, text[-3000:]
            time.sleep(0.1)
