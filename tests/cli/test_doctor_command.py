"""`penstock doctor`."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from penstock.cli import doctor_checks
from penstock.cli.doctor_checks import (
    check_data_folder,
    check_java,
    check_open_files,
    check_pipelines,
    check_port,
    check_program,
    java_version,
)

Command = Callable[..., Any]
NOBODY = "127.0.0.1:1"


def test_without_a_broker_it_warns_and_says_what_to_do(command: Command, tmp_path: Path) -> None:
    outcome = command("doctor", "-b", NOBODY, "--data", str(tmp_path))
    assert outcome.code == 0
    rows = {line.split("\t")[1]: line.split("\t") for line in outcome.lines[1:]}
    assert rows["python"][0] == "ok"
    assert rows["broker"][0] == "warn" and "penstock up" in rows["broker"][3]


def test_something_that_fails_is_code_1(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    outcome = command("doctor", "-b", NOBODY, "--data", str(file), "--json")
    assert outcome.code == 1
    checks = {check["check"]: check for check in json.loads(outcome.out)["checks"]}
    assert checks["data folder"]["status"] == "fail"
    assert checks["data folder"]["advice"]


def test_a_server_that_speaks_something_else(command: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        greeting = Greeter(server)
        outcome = command("doctor", "-b", address, "--data", str(tmp_path))
        greeting.close()
    assert "does not speak Kafka's protocol" in outcome.out


class Greeter:
    """Answers each of the first connections as a web server would."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    def close(self) -> None:
        self._thread.join()


@pytest.mark.clients
def test_with_a_broker_it_shows_the_versions(on_broker: Command, tmp_path: Path) -> None:
    outcome = on_broker("doctor", "--data", str(tmp_path), "--json")
    document = json.loads(outcome.out)
    assert [check["status"] for check in document["checks"] if check["check"] == "broker"] == ["ok"]
    versions = {api["api"]: (api["min"], api["max"]) for api in document["apis"]}
    assert versions[18] == (0, 4)
    assert "18\t0\t4" in on_broker("doctor", "--data", str(tmp_path), "--versions").lines


def test_a_folder_that_is_still_to_be_made(tmp_path: Path) -> None:
    finding = check_data_folder(tmp_path / "a" / "b")
    assert finding.status in ("ok", "warn")
    assert "GiB free" in finding.text


def test_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "FREE_BYTES_FAIL", 1 << 60)
    assert check_data_folder(tmp_path).status == "fail"


def test_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert check_port(port, broker_answers=False).status == "warn"
        assert check_port(port, broker_answers=True).status == "ok"
    assert check_port(port, broker_answers=False).status == "ok"


def test_programs() -> None:
    assert check_program("sh", "this", "that").status == "ok"
    assert check_program("no-such-program", "this", "that").status == "warn"


def test_file_limits() -> None:
    assert check_open_files().status in ("ok", "warn")


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\n', 17),
        ('java version "1.8.0_402"\n', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("nonsense", None),
    ],
)
def test_versions_of_java(said: str, version: int | None) -> None:
    assert java_version(said) == version


def test_a_java_that_is_too_old_or_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "does not run" in check_java().text
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'java version \"1.8.0_402\"' >&2\n")
    program.chmod(0o755)
    finding = check_java()
    assert (finding.status, finding.text.partition(",")[0]) == ("warn", "Java 8")
    assert "Java 17" in finding.advice


def test_what_pipelines_need_beside_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    found = check_pipelines()
    assert (found.status, found.text) == ("ok", "yaml, fastavro, psycopg, pymysql")
    monkeypatch.setattr(doctor_checks, "find_spec", lambda module: None if module == "pymysql" else module)
    found = check_pipelines()
    assert (found.status, found.text) == ("warn", "pymysql not found (only needed for pipelines)")
    assert "penstock[pipelines]" in found.advice
