"""The checks of `penstock doctor`: each looks at one thing and says ok, warn or fail, and what to do about it."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import crc32c

from penstock.cli.connection import Connection, parse_addresses
from penstock.cli.direct import DirectClient, can_ask
from penstock.cli.direct_security import parse_security
from penstock.cli.failure import Failure
from penstock.wire._records import is_compiled

OK = "ok"
WARN = "warn"
FAIL = "fail"

PYTHON_MIN = (3, 11)
JAVA_MIN = 17
OPEN_FILES_MIN = 4096
FREE_BYTES_WARN = 5 << 30
FREE_BYTES_FAIL = 256 << 20
PROGRAM_S_MAX = 20
PIPELINE_MODULES = ("yaml", "fastavro", "psycopg", "pymysql")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; `advice` says what to do if that is not ok."""

    check: str
    status: str
    text: str
    advice: str = ""


def check_python() -> Finding:
    release = platform.python_version()
    if sys.version_info >= PYTHON_MIN:
        return Finding("python", OK, f"Python {release} on {platform.system()} {platform.machine()}")
    return Finding("python", FAIL, f"Python {release}", "install Python 3.11 or newer")


def check_record_loops() -> Finding:
    if is_compiled():
        return Finding("record loops", OK, "compiled")
    advice = "install a C compiler and Python's headers, then install penstock again"
    return Finding("record loops", WARN, "plain Python: columnar reads and compaction are slow", advice)


def check_event_loop() -> Finding:
    if find_spec("uvloop"):
        return Finding("event loop", OK, "uvloop")
    return Finding("event loop", WARN, "asyncio's own", "pip install uvloop")


def check_crc32c() -> Finding:
    if crc32c.hardware_based:
        return Finding("crc32c", OK, "by the processor")
    return Finding(
        "crc32c", WARN, "in software: checking batches costs more", "run on a processor with CRC instructions"
    )


def check_open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    text = f"{soft} (a broker raises it to {'any number' if limit == sys.maxsize else limit})"
    if limit >= OPEN_FILES_MIN:
        return Finding("open files", OK, text)
    return Finding("open files", WARN, text, f"raise the hard limit: ulimit -Hn {OPEN_FILES_MIN * 16}")


def check_data_folder(folder: Path) -> Finding:
    """The folder, or the nearest one above it that exists, must be writable and have room."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding("data folder", FAIL, f"{folder}: {there} is not writable", "pass another folder with --data")
    free_bytes = shutil.disk_usage(there).free
    text = f"{folder}: {free_bytes / (1 << 30):.1f} GiB free"
    if free_bytes < FREE_BYTES_FAIL:
        return Finding("data folder", FAIL, text, "free some space or pass another folder with --data")
    if free_bytes < FREE_BYTES_WARN:
        return Finding("data folder", WARN, text, "retention limits what topics keep: see retention.bytes")
    return Finding("data folder", OK, text)


def check_port(port: int, broker_answers: bool) -> Finding:
    """Can `penstock up` listen here? A broker of ours that already does is fine."""
    name = f"port {port}"
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if broker_answers:
                return Finding(name, OK, "in use by a running broker")
            return Finding(name, WARN, f"not free ({error.strerror})", "start with another: penstock up --port N")
    return Finding(name, OK, "free")


def check_program(program: str, purpose: str, advice: str) -> Finding:
    """A program that is nice to have."""
    path = shutil.which(program)
    if path:
        return Finding(program, OK, path)
    return Finding(program, WARN, f"not found (only needed for {purpose})", advice)


def check_java() -> Finding:
    """Spark runs on Java; nothing else here does."""
    purpose, advice = "only needed for Spark", "install Java 17 or newer (Debian: apt-get install default-jre-headless)"
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if path is None:
        return Finding("java", WARN, f"not found ({purpose})", advice)
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=PROGRAM_S_MAX, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("java", WARN, f"{path} does not run: {error}", advice)
    release = java_version(said.stderr + said.stdout)
    if release is None:
        return Finding("java", WARN, f"{path} does not say which version it is", advice)
    text = f"Java {release}, {path}"
    return Finding("java", OK, text) if release >= JAVA_MIN else Finding("java", WARN, f"{text} ({purpose})", advice)


def java_version(said: str) -> int | None:
    """The feature version in what `java -version` prints: 17 of "17.0.15", 8 of "1.8.0_402"."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def check_spark() -> Finding:
    advice = "pip install 'penstock[spark]'"
    try:
        return Finding("pyspark", OK, version("pyspark"))
    except PackageNotFoundError:
        return Finding("pyspark", WARN, 'not found (only needed for format("penstock") and pipelines)', advice)


def check_pipelines() -> Finding:
    """What `penstock pipeline` needs beside Spark: formats, and the drivers of databases."""
    missing = [module for module in PIPELINE_MODULES if find_spec(module) is None]
    if not missing:
        return Finding("pipelines", OK, ", ".join(PIPELINE_MODULES))
    text = f"{', '.join(missing)} not found (only needed for pipelines)"
    return Finding("pipelines", WARN, text, "pip install 'penstock[pipelines]'")


def check_broker(connection: Connection) -> tuple[Finding, dict[int, tuple[int, int]]]:
    """Does a broker answer, and which versions of the APIs does it serve?"""
    if not can_ask(connection):
        try:
            connection.metadata(connection.admin())
        except Failure as failure:
            return Finding("broker", FAIL, failure.message), {}
        return Finding("broker", OK, f"{connection.bootstrap} answers"), {}
    problem = "no address given"
    for address in parse_addresses(connection.bootstrap):
        try:
            with DirectClient(address, security=parse_security(connection.settings)) as client:
                text = f"{address[0]}:{address[1]} answers and serves {len(client.versions)} APIs"
                return Finding("broker", OK, text), client.versions
        except Failure as failure:
            problem = failure.message
    return Finding("broker", WARN, problem, "start one with 'penstock up' or pass --bootstrap"), {}
