"""Spark that does not start, or is interrupted while it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.doctor_checks import OK, check_java

PROGRAM = (sys.executable, "-m", "penstock.cli", "pipeline")
PIPELINE = "sources: {a: {files: load, format: string}}\nsinks: {b: {from: a, parquet: out}}\n"
WAIT_S_MAX = 120.0

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(check_java().status != OK, reason="NOT TESTED WITH SPARK: there is no Java 17"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "load").mkdir()
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE)
    return file


def complaint(*words: str | Path, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, env={**os.environ, **environment}, timeout=WAIT_S_MAX
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()[-1]


def test_without_java_it_says_what_to_install(file: Path, tmp_path: Path) -> None:
    code, told = complaint("check", file, JAVA_HOME=str(tmp_path / "nowhere"))
    assert code == 1 and told.startswith("penstock: Spark does not start: java: ") and "install Java 17" in told


def test_a_master_that_is_none(file: Path) -> None:
    code, told = complaint("run", file, "--master", "nonsense")
    assert code == 1 and told.startswith("penstock: Spark does not start: ")


def processes_with(word: str) -> dict[int, bytes]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if word.encode() in text:
            found[int(path.parent.name)] = text
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_start_that_is_interrupted(file: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Java that cannot tell where it listens, because nobody waits for it any more, would stay."""
    command = [*PROGRAM, "run", str(file), "--conf", f"spark.local.dir={tmp_path}"]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline_s = time.monotonic() + WAIT_S_MAX
    try:
        while not any(b"java\0" in text for text in processes_with(str(tmp_path)).values()):
            assert time.monotonic() < deadline_s and program.poll() is None
            time.sleep(0.01)
        program.send_signal(number)
        program.communicate(timeout=WAIT_S_MAX)
        assert program.returncode == 130
        while left := processes_with(str(tmp_path)):
            assert time.monotonic() < deadline_s, left
            time.sleep(0.05)
    finally:
        program.kill()
