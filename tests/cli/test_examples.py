"""Every example runs, to its end, against a running broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 60

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda example: example.stem)
def test_an_example_runs(example: Path, bootstrap: str) -> None:
    outcome = subprocess.run(
        [sys.executable, str(example), bootstrap], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert outcome.stdout


def test_every_example_is_in_the_list() -> None:
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for example in EXAMPLES.glob("*.py"):
        assert f"[{example.name}]({example.name})" in listed
