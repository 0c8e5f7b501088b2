"""A Spark driver as a process of its own, for tests: start it, kill it with everything below it, start it again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from .conftest import PROJECT, WORKER_ENVIRONMENT
from .stream_driver import DriverPlan

DONE, READY, FAILED = "done", "ready", "failed "
END_S_MAX = 240.0
POLL_S = 0.02


class DriverProcess:
    """`stream_driver.py` with a plan. Its JVM and its Python workers are in its process group and die with it."""

    def __init__(self, plan: DriverPlan, folder: Path, name: str = "driver") -> None:
        self.plan = plan
        self._output = folder / f"{name}.out"
        self._errors = folder / f"{name}.err"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self._output.open("ab") as output, self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.stream_driver", self.plan.text()],
                stdout=output,
                stderr=errors,
                env={**os.environ, **WORKER_ENVIRONMENT},
                cwd=PROJECT,
                start_new_session=True,
            )
        return self

    def kill(self) -> None:
        """End the driver and all its processes at once."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(END_S_MAX)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_done(self) -> None:
        """Wait until everything is written; AssertionError with the end of what it printed if that does not happen."""
        assert self._process is not None
        try:
            code = self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver does not end\n{self.log()}") from None
        assert code == 0 and self.lines()[-1:] == [DONE], f"the driver ended with {code}\n{self.log()}"

    def wait_end(self) -> int:
        """Wait until it has ended, however that is."""
        assert self._process is not None
        return self._process.wait(END_S_MAX)

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines() if self._output.exists() else []

    def failures(self) -> list[str]:
        """What the query failed with."""
        return [line for line in self.lines() if line.startswith(FAILED)]

    def wait_failures(self, count: int) -> None:
        until_s = time.monotonic() + END_S_MAX
        while len(self.failures()) < count:
            assert time.monotonic() < until_s and self.is_running, f"no {count} failures\n{self.log()}"
            time.sleep(POLL_S)

    def log(self) -> str:
        return "\n".join([*self.lines()[-10:], self._errors.read_text(errors="replace")[-6000:]])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
