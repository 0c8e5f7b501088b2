"""kafkajs, installed once from npm into .cache/node, and a broker to run it against."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.testing.broker_process import BrokerProcess

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".cache" / "node"
KAFKAJS = "2.2.4"
INSTALL_TIMEOUT_S = 120
PROGRAM_TIMEOUT_S = 60


@pytest.fixture(scope="session")
def kafkajs() -> Path:
    """The folder with node's modules."""
    for command in ("node", "npm"):
        if shutil.which(command) is None:
            pytest.skip(f"NOT TESTED AGAINST KAFKAJS: {command} is not installed")
    modules = CACHE / "node_modules"
    package = modules / "kafkajs" / "package.json"
    if not package.exists() or json.loads(package.read_text())["version"] != KAFKAJS:
        CACHE.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), f"kafkajs@{KAFKAJS}"]
        try:
            done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"NOT TESTED AGAINST KAFKAJS: npm took more than {INSTALL_TIMEOUT_S} s")
        if done.returncode != 0:
            pytest.skip(f"NOT TESTED AGAINST KAFKAJS: npm could not install it: {done.stderr.strip()}")
    return modules


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("kafkajs") / "data") as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    """A fresh name."""
    return f"node-{uuid4().hex[:12]}"


@pytest.fixture
def program(kafkajs: Path, broker: BrokerProcess) -> Callable[[str, str], dict[str, Any]]:
    """Runs one of the programs in this folder, and gives the answer of each step: `{"error": TYPE}` for errors."""

    def run(name: str, topic: str) -> dict[str, Any]:
        return run_program(kafkajs, name, broker.bootstrap, topic)

    return run


def run_program(
    kafkajs: Path, name: str, bootstrap: str, topic: str, login: dict[str, str] | None = None
) -> dict[str, Any]:
    environment = {**os.environ, "NODE_PATH": str(kafkajs), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    environment["KAFKAJS_LOGIN"] = json.dumps(login or {})
    command = ["node", "--no-warnings", str(HERE / f"{name}.js"), bootstrap, topic]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: {"error": line["error"]} if "error" in line else line.get("answer") for line in lines}
