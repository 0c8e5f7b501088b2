"""The guide to clusters does what it says: its commands run, in order, on a cluster, and print what it shows.

A block behind `<!-- run -->` is run, one behind `<!-- run when healthy -->` once the cluster is; and
`<!-- kill broker 1 -->` does that. In what is shown a `…` stands for anything, and a line that is only `…` for any
number of lines.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.base.broker_settings import load_broker_settings
from penstock.base.properties import from_environment, parse_properties
from penstock.testing.cluster_processes import UpCluster

PROJECT = Path(__file__).parents[2]
GUIDE = PROJECT / "docs" / "guides" / "cluster.md"
SERVICE = PROJECT / "examples" / "systemd"
PROGRAM = [sys.executable, "-m", "penstock.cli"]
PATIENCE_S = 90
FIRST_PORT = 9092
CHOSEN_REPLICAS = "2,0,1"  # of the guide's move by hand


def steps(text: str) -> Iterator[tuple[str, str]]:
    """What the comments of a page ask for, each with the block behind it."""
    yield from re.findall(r"<!-- ([^>]+) -->\n(?:```\n(.*?)```\n)?", text, re.DOTALL)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each command of a block, with the lines that it should print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


def is_as_shown(printed: list[str], shown: list[str]) -> bool:
    pattern = "".join(
        "(?:.*\n)*?" if line == "…" else re.escape(_plain(line)).replace("…", ".*") + "\n" for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{_plain(line)}\n" for line in printed)) is not None


def _plain(line: str) -> str:
    return re.sub(r"\s+", " ", line).strip()


@pytest.mark.parametrize(
    ("printed", "shown", "is_same"),
    [
        (["a\tb"], ["a      b"], True),
        (["a 17 b"], ["a … b"], True),
        (["a", "x", "y"], ["a", "…"], True),
        (["a"], ["a", "…"], True),
        (["a", "x"], ["a"], False),
        (["b"], ["a"], False),
    ],
)
def test_how_lines_are_compared(printed: list[str], shown: list[str], is_same: bool) -> None:
    assert is_as_shown(printed, shown) == is_same


def test_the_page_has_something_to_run() -> None:
    assert len(list(steps(GUIDE.read_text("utf-8")))) > 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    with UpCluster(3, tmp_path_factory.mktemp("guide") / "data") as cluster:
        yield cluster


@pytest.mark.cluster
def test_the_commands_do_what_the_guide_says(cluster: UpCluster) -> None:
    text = GUIDE.read_text("utf-8")
    for broker_id, address in enumerate(cluster.process.addresses):
        text = text.replace(f"127.0.0.1:{FIRST_PORT + broker_id}", address)
    for comment, block in steps(text):
        if comment.startswith("kill broker"):
            cluster.kill(int(comment.split()[-1]))
            cluster.wait_ready()
            continue
        if comment == "run when healthy":
            eventually(lambda: run("penstock cluster status", cluster.bootstrap).returncode == 0)
        for command, shown in commands(block):
            if CHOSEN_REPLICAS in command:  # they are drawn: these may be the ones it has
                assert run(command.replace(CHOSEN_REPLICAS, "0,1,2"), cluster.bootstrap).returncode == 0
            outcome = run(command, cluster.bootstrap)
            printed = outcome.stdout.splitlines()
            assert outcome.returncode == 0, (command, printed)
            assert is_as_shown(printed, shown), (command, printed, shown)


def run(command: str, bootstrap: str) -> subprocess.CompletedProcess[str]:
    """Runs `penstock …`, or `echo … | penstock …`."""
    *before, last = command.split(" | ")
    [given] = [shlex.split(word)[1] for word in before] or [""]
    program, *arguments = shlex.split(last)
    assert program == "penstock"
    return subprocess.run(
        [*PROGRAM, *arguments],
        input=f"{given}\n" if given else "",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap, "PYTHONUNBUFFERED": "1"},
    )


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come true"
        time.sleep(0.1)


def test_the_settings_beside_the_service_are_settings() -> None:
    values = parse_properties((SERVICE / "broker.properties").read_text("utf-8"))
    lines = (SERVICE / "broker-1.env").read_text("utf-8").splitlines()
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    settings = load_broker_settings(values | from_environment(environment, ()) | {"node.id": "1"})
    assert list(settings.warnings) == []
    assert settings.text("broker.rack") == "a"
    assert "host1:9092" in settings.list("advertised.listeners")[0]


def test_the_service_starts_what_there_is() -> None:
    unit = (SERVICE / "penstock-broker@.service").read_text("utf-8")
    [line] = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    program, command, *options = line.removeprefix("ExecStart=").split()
    assert (program, command) == ("/opt/penstock/bin/penstock", "broker")
    shown = subprocess.run([*PROGRAM, "broker", "--help"], capture_output=True, text=True, check=True).stdout
    assert all(option in shown for option in options if option.startswith("--"))
