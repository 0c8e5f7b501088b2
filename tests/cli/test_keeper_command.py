"""`penstock keeper` as a process: its line, its end, its data, and what it says when it cannot start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.raw_zookeeper import RawZooKeeper
from penstock.testing.zookeeper_processes import KeeperProcess, ask
from penstock.zookeeper.operations import OPEN_ACL
from penstock.zookeeper.protocol import CreateRequest, DataStat, Op, PathWatch


def keeper(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", "keeper", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_serves_keeps_and_stops(tmp_path: Path) -> None:
    process = KeeperProcess(tmp_path / "data")
    with process:
        assert ask(process.port, b"ruok") == b"imok"
        assert f"penstock ready keeper=127.0.0.1:{process.port}\n" in process.log_text()
        with RawZooKeeper(process.port) as client:
            client.connect()
            client.ask(Op.CREATE, CreateRequest("/kept", b"x", OPEN_ACL, 0))
            session = client.session
            assert process.stop() == 0
            assert client.has_ended()
        process.start()
        with RawZooKeeper(process.port) as client:
            assert client.connect(session_id=session.session_id, password=session.password) == session
            assert client.ask(Op.GET_DATA, PathWatch("/kept", False)).record(DataStat).data == b"x"
        process.kill()
        process.start()
        taken = keeper("--port", str(process.port), "--data", str(tmp_path / "other"))
        assert (taken.returncode, taken.stdout) == (1, "")
        assert taken.stderr.startswith(f"penstock: cannot listen on 127.0.0.1:{process.port}: ")
        in_use = keeper("--port", "0", "--data", str(tmp_path / "data"))
        assert in_use.returncode == 1
        assert "is in use by another process" in in_use.stderr


@pytest.mark.parametrize("options", [("--port", "70000"), ("--port", "x"), ("--nonsense",)])
def test_mistakes_are_named(options: tuple[str, ...]) -> None:
    outcome = keeper(*options)
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("penstock: ")


def test_help_shows_the_options() -> None:
    outcome = keeper("--help")
    assert outcome.returncode == 0
    for option in ("--port", "--data", "--host"):
        assert option in outcome.stdout
