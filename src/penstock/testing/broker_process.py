"""A broker as a real process, for tests: start it, kill it, pause it, bring it back on the same port and folder.

    with BrokerProcess(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

The process is `penstock up` as a user starts it. It gets a port of its own that stays the same over restarts. Whatever
goes wrong is reported with the end of the broker's log. `pytest_plugin` has the same as fixtures.
"""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

READY = "penstock ready kafka="
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
PORT_TRIES = 5
LOG_LINES_SHOWN = 60
#: Below the range from which systems give ports to outgoing connections, so that no client that tries to come back
#: can hold (or, on loopback, be) the port of a broker that is down.
PORTS = range(12_000, 32_000)

_PORT_TAKEN = "cannot listen on"


class BrokerProcessError(AssertionError):
    """The broker did not do what the test asked of it; the text ends with its log."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now and that no outgoing connection gets."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(200):
        port = random.choice(PORTS)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise BrokerProcessError(f"found no free port on {host}")


class BrokerProcess:
    """`penstock up` on a folder. `settings` go to --set; a port of 0 is chosen at the first start and kept."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        settings: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.data = data
        self.host = host
        self.port = port
        self.settings = dict(settings or {})
        self.addresses: list[str] = []
        self.metrics: list[str] = []
        self._log = data.with_name(data.name + ".log")
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, as `host:port`: the first one of the ready line."""
        if not self.addresses:
            raise BrokerProcessError("the broker was never started")
        return self.addresses[0]

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        """The command line that starts this broker."""
        options = ["--host", self.host, "--port", str(self.port), "--data", str(self.data)]
        for name, value in self.settings.items():
            options += ["--set", f"{name}={value}"]
        return [sys.executable, "-m", "penstock.cli", "up", *options]

    def start(self) -> Self:
        """Start it and wait until it can serve; raises BrokerProcessError."""
        if self.is_running:
            raise BrokerProcessError("the broker is running already")
        if self.port:
            self._start_once()
            return self
        for left in reversed(range(PORT_TRIES)):
            self.port = free_port(self.host)
            try:
                self._start_once()
                return self
            except BrokerProcessError as error:
                self.port = 0
                if not left or _PORT_TAKEN not in str(error):
                    raise
        raise AssertionError("unreachable")

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash of the process does."""
        self._running().kill()
        self.wait_for_end(STOP_TIMEOUT_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask it to stop (SIGTERM) and wait until it has; it must end with the exit code 0."""
        self._running().terminate()
        code = self.wait_for_end(timeout_s)
        if code != 0:
            raise self._error(f"the broker stopped with the exit code {code}")

    def restart(self) -> Self:
        """Stop it cleanly if it runs, and start it again on the same port and folder."""
        if self.is_running:
            self.stop()
        return self.start()

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): its connections stay open and nothing moves."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after a pause (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def log_text(self) -> str:
        """Everything the broker logged, over all its starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        """End it however it stands; never raises for a broker that is gone."""
        if self._process is None:
            return
        if self.is_running:
            self.resume()
            self._process.terminate()
        self.wait_for_end(STOP_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_once(self) -> None:
        self.data.parent.mkdir(parents=True, exist_ok=True)
        # The broker reads settings from variables with this prefix; those of the tests are none.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        before_bytes = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log, env=environment)
        places = self._read_ready_line(self._process, before_bytes)
        self.addresses, self.metrics = places["kafka"], places.get("metrics", [])
        if "listeners" not in self.settings:
            self.port = int(self.addresses[0].rpartition(":")[2])

    def _read_ready_line(self, process: subprocess.Popen[bytes], log_from_bytes: int) -> dict[str, list[str]]:
        """The addresses of each kind."""
        assert process.stdout is not None
        deadline_s = time.monotonic() + self._start_timeout_s
        received = b""
        while b"\n" not in received:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
                process.kill()
                self.wait_for_end(STOP_TIMEOUT_S)
                raise self._error(f"the broker was not ready after {self._start_timeout_s} s", log_from_bytes)
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                code = self.wait_for_end(STOP_TIMEOUT_S)
                raise self._error(f"the broker did not start, exit code {code}", log_from_bytes)
            received += piece
        line = received.decode().splitlines()[0]
        if not line.startswith(READY):
            process.kill()
            self.wait_for_end(STOP_TIMEOUT_S)
            raise self._error(f"expected the ready line, not {line!r}", log_from_bytes)
        places = (word.partition("=") for word in line.split() if "=" in word)
        return {kind: addresses.split(",") for kind, _, addresses in places}

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise self._error("the broker is not running")
        return self._process

    def wait_for_end(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until it has ended by itself; returns the exit code."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise self._error(f"the broker did not stop within {timeout_s} s and was killed") from None
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
        return code

    def _error(self, what: str, log_from_bytes: int = 0) -> BrokerProcessError:
        log = self._log.read_bytes()[log_from_bytes:].decode(errors="replace") if self._log.exists() else ""
        lines: Sequence[str] = log.splitlines()[-LOG_LINES_SHOWN:]
        return BrokerProcessError("\n".join([what, "--- the broker's log:", *lines]))
