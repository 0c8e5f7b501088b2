"""`penstock pipeline new`: what it writes can be read, and what is there stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.reading import read_file
from penstock.pipelines.specification import ParquetSink, TopicSource
from penstock.pipelines.status import PipelineStatus, State, write_status

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_file_is_a_pipeline(command: Command) -> None:
    outcome = command("pipeline", "new", "revenue", "--topic", "sales")
    assert (outcome.code, outcome.err) == (0, "")
    assert "penstock pipeline check revenue.yaml" in outcome.out
    pipeline = read_file(Path("revenue.yaml"), {})
    source, sink = pipeline.sources["orders"], pipeline.sinks["to_files"]
    assert pipeline.name == "revenue"
    assert isinstance(source, TopicSource) and source.topics == ("sales",)
    assert isinstance(sink, ParquetSink) and sink.input == "per_minute"


def test_what_it_suggests_in_comments_can_be_read_too(command: Command) -> None:
    command("pipeline", "new", "revenue.yaml")
    keys = (
        "  to_topic:",
        "  to_table:",
        "  items:",
        "  changed_items:",
        "connections:",
        "  shop:",
        "trigger:",
        "spark:",
    )
    lines = Path("revenue.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        bare = line.replace("# ", "", 1)
        if line != bare and bare.startswith(keys):
            lines[number] = bare
    Path("all.yaml").write_text("\n".join(lines))
    pipeline = read_file(Path("all.yaml"), {"SHOP_PASSWORD": "secret"})
    assert {*pipeline.sources} == {"orders", "items", "changed_items"}
    assert {*pipeline.sinks} == {"to_files", "to_topic", "to_table"}


def test_a_file_that_is_there_stays(command: Command) -> None:
    Path("revenue.yaml").write_text("mine")
    outcome = command("pipeline", "new", "revenue")
    assert outcome.code == 5
    assert "revenue.yaml is there already" in outcome.err
    assert Path("revenue.yaml").read_text() == "mine"


@pytest.mark.parametrize("words", [("a b",), ("revenue", "--topic", "no topic")])
def test_names_that_cannot_be_used_leave_nothing(command: Command, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert command("pipeline", "new", *words).code == 2
    assert list(tmp_path.iterdir()) == []


def test_completion_knows_the_pipelines_that_ran_here(tmp_path: Path) -> None:
    for name in ("revenue", "returns", "stock"):
        write_status(tmp_path / ".penstock", PipelineStatus(name, State.STOPPED))
    words = "penstock pipeline status re"
    environment = {**os.environ, "_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    shown = subprocess.run([sys.executable, "-m", "penstock.cli"], env=environment, capture_output=True, text=True)
    assert shown.stdout.split() == ["returns", "revenue"]
