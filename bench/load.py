"""The load generator from Python's side: compile bench/load.c when it has changed, run it, read what it measured.

Each run is a process of its own that ends by itself (`timeout_s` is built in); what it prints is one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

Options = dict[str, int | float | str]
Figures = dict[str, float]

SOURCE = Path(__file__).with_name("load.c")
HEADERS = [Path(__file__).with_name(name) for name in ("wire.h", "conversations.h")]
COMPILER_FLAGS = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
GRACE_S = 15


class MeasurementFailed(Exception):
    """The load generator could not be built, or a broker could not be started or gave an error or no answer."""


def build(cache: Path) -> Path:
    """The compiled load generator, made anew only when its source has changed."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (SOURCE, *HEADERS))).hexdigest()[:12]
    binary = cache / f"load-{digest}"
    if binary.exists():
        return binary
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise MeasurementFailed("a C compiler (cc) is needed to build the load generator")
    cache.mkdir(parents=True, exist_ok=True)
    fresh = binary.with_suffix(".new")
    done = subprocess.run([compiler, *COMPILER_FLAGS, "-o", str(fresh), str(SOURCE)], capture_output=True, text=True)
    if done.returncode != 0:
        raise MeasurementFailed(f"bench/load.c does not compile:\n{done.stderr}")
    fresh.rename(binary)
    return binary


class RunningLoad:
    """A load that has been started and whose figures are still to come."""

    def __init__(self, command: list[str], timeout_s: float) -> None:
        self._title = " ".join(command[1:])
        self._timeout_s = timeout_s
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def figures(self) -> Figures:
        try:
            out, err = self._process.communicate(timeout=self._timeout_s + GRACE_S)
        finally:
            self.end()
        if self._process.returncode != 0:
            raise MeasurementFailed(f"{err.strip() or 'the load generator failed'}  [{self._title}]")
        result: Figures = json.loads(out)
        return result

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class LoadGenerator:
    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def start(self, mode: str, port: int, options: Options, timeout_s: float = 120) -> RunningLoad:
        named = [f"{name}={value}" for name, value in options.items()]
        return RunningLoad([str(self._binary), mode, f"port={port}", f"timeout_s={timeout_s}", *named], timeout_s)

    def run(self, mode: str, port: int, options: Options, timeout_s: float = 120) -> Figures:
        return self.start(mode, port, options, timeout_s).figures()
