"""Apache ZooKeeper and our keeper as real processes: start, kill, pause, and bring back on the same port and folder.

    with ApacheZooKeeper(tmp_path / "zookeeper") as server:
        client = KazooClient(server.address)

Apache ZooKeeper is Debian's package (`scripts/install-test-tools` brings it) and needs Java. A server alone, or with
its name in `ensemble` one of several; each gets a folder of its own. Whatever goes wrong is reported with the end of
what the process printed.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.broker_process import free_port

JAR = Path("/usr/share/java/zookeeper.jar")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02
SMALL_JVM = ("-Xms32m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1")
TICK_MS = 200
LOG_LINES_SHOWN = 40


class NoApacheZooKeeper(Exception):
    """Apache ZooKeeper cannot be run here; the text says what is missing."""


class ServerError(AssertionError):
    """The server did not do what was asked of it; the text ends with what it printed."""


def require_zookeeper() -> None:
    """NoApacheZooKeeper unless it is installed."""
    if shutil.which("java") is None:
        raise NoApacheZooKeeper("there is no java")
    if not JAR.exists():
        raise NoApacheZooKeeper("Debian's package zookeeper is not installed")


class _Server:
    """A process that answers ZooKeeper's four-letter words on a port of its own."""

    name = "server"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._log = folder.with_name(folder.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        raise NotImplementedError

    def launch(self) -> None:
        """Start it without waiting until it serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)

    def wait_until_serving(self) -> Self:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while b"Mode:" not in ask(self.port, b"srvr"):
            if not self.is_running:
                raise self._error("it did not start")
            if time.monotonic() > deadline_s:
                raise self._error(f"it does not serve after {START_TIMEOUT_S} s")
            time.sleep(POLL_S)
        return self

    def start(self) -> Self:
        self.launch()
        return self.wait_until_serving()

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """Ask it to stop (SIGTERM); its exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._error(f"it did not stop within {STOP_TIMEOUT_S} s and was killed") from None

    def pause(self) -> None:
        """Let it stand still (SIGSTOP)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.kill()

    def log_text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _error(self, what: str) -> ServerError:
        lines = self.log_text().splitlines()[-LOG_LINES_SHOWN:]
        return ServerError("\n".join([f"{self.name}: {what}", *lines]))


class ApacheZooKeeper(_Server):
    """Apache ZooKeeper; `ensemble` names the ports of all its servers, and `number` which of them this is."""

    name = "Apache ZooKeeper"

    def __init__(
        self,
        folder: Path,
        *,
        number: int = 0,
        ensemble: dict[int, tuple[int, int]] | None = None,
        container_check_ms: int = 3_600_000,
    ) -> None:
        super().__init__(folder)
        self.number = number
        self.container_check_ms = container_check_ms
        self._ensemble = ensemble or {}

    def command(self) -> list[str]:
        settings = [
            f"tickTime={TICK_MS}",
            "initLimit=50",
            "syncLimit=25",
            f"dataDir={self.folder}/data",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
            "maxClientCnxns=0",
            "minSessionTimeout=500",
            "maxSessionTimeout=60000",
            "forceSync=no",
        ]
        settings += [
            f"server.{number}=127.0.0.1:{peer}:{election}" for number, (peer, election) in self._ensemble.items()
        ]
        (self.folder / "data").mkdir(exist_ok=True)
        (self.folder / "data" / "myid").write_text(f"{self.number}\n")
        file = self.folder / "zoo.cfg"
        file.write_text("\n".join([*settings, ""]))
        flags = [*SMALL_JVM, f"-Dznode.container.checkIntervalMs={self.container_check_ms}"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", *flags, "-cp", str(JAR), main, str(file)]


@contextmanager
def zookeeper_ensemble(folder: Path, count: int = 3) -> Iterator[list[ApacheZooKeeper]]:
    """So many servers of Apache ZooKeeper that are one service."""
    ports = {number: (free_port(), free_port()) for number in range(1, count + 1)}
    servers = [ApacheZooKeeper(folder / f"server-{number}", number=number, ensemble=ports) for number in ports]
    with ExitStack() as stack:
        for server in servers:
            server.launch()
            stack.push(server.__exit__)
        for server in servers:
            server.wait_until_serving()
        yield servers


class KeeperProcess(_Server):
    """`penstock keeper` as a user starts it."""

    name = "penstock keeper"

    def command(self) -> list[str]:
        options = ["--port", str(self.port), "--data", str(self.folder)]
        return [sys.executable, "-m", "penstock.cli", "keeper", *options]


def ask(port: int, word: bytes) -> bytes:
    """The answer to a four-letter word; empty if there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(word)
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
            return answer
    except OSError:
        return b""
