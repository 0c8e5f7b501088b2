"""The first steps with pipelines, as a newcomer does them: the guide's commands as written, and `pipeline new`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

import penstock
from penstock.cli.doctor_checks import OK, check_java

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "pipelines.md"
RUN_S_MAX = 300
#: Blocks are run as they are but for these: what installs, and what goes on until Ctrl-C.
LEFT_OUT = ("pip install", "penstock up", "penstock pipeline run shop.yaml")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(check_java().status != OK, reason="NOT TESTED WITH SPARK: there is no Java 17"),
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```\n", GUIDE.read_text("utf-8"), re.DOTALL)


def in_shell(script: str, folder: Path, bootstrap: str) -> subprocess.CompletedProcess[str]:
    """Runs it with a `penstock` that is this one."""
    program = folder / "bin" / "penstock"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m penstock.cli "$@"\n')
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
        "PENSTOCK_BOOTSTRAP": bootstrap,
    }
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_guide_from_an_empty_folder(tmp_path: Path, bootstrap: str) -> None:
    (tmp_path / "shop.yaml").write_text(blocks("yaml")[0])
    lines = [line for block in blocks("sh") for line in block.splitlines() if not line.startswith(LEFT_OUT)]
    assert len(lines) > 4
    done = in_shell("\n".join(lines), tmp_path, bootstrap)
    assert "sink to_topic  big → topic big-orders  (append, exactly once)" in done.stdout
    assert done.stdout.splitlines()[-1] == '{"id":1,"sku":"pump","amount":120.5,"at":"2026-01-31T12:00:00.000Z"}'
    assert [*(tmp_path / "big-orders" / "date=2026-01-31").glob("*.parquet")]
    dead = in_shell("penstock consume orders.dead --from beginning", tmp_path, bootstrap)
    assert dead.stdout == "this is no order\n"


def test_a_new_pipeline_passes_its_check_and_runs(tmp_path: Path, bootstrap: str) -> None:
    """Two orders, one of them twice, are counted; a third moves the watermark past their minute."""
    topic = f"sales-{uuid4().hex[:12]}"
    script = f"""
        penstock topic create {topic}
        penstock pipeline new revenue --topic {topic}
        for order in a:1:12:00 a:1:12:00 b:2:12:00 c:1:12:30; do
            IFS=: read -r id quantity hour minute <<< "$order"
            echo "{{\\"id\\": \\"$id\\", \\"sku\\": \\"tea\\", \\"quantity\\": $quantity,"\\
                 "\\"at\\": \\"2026-01-31T$hour:$minute:00Z\\"}}"
        done | penstock produce {topic}
        penstock pipeline check revenue.yaml --json > check.json
        penstock pipeline run --once revenue.yaml
        penstock pipeline status revenue
    """
    done = in_shell(script, tmp_path, bootstrap)
    assert '"mistakes": []' in (tmp_path / "check.json").read_text()
    assert "finished" in done.stdout
    assert "log level" not in done.stderr  # nor anything else that Spark says of itself
    assert (minutes(tmp_path)) == [("tea", 2, 3)]


def minutes(folder: Path) -> list[tuple[object, ...]]:
    from pyarrow import dataset

    rows = dataset.dataset(folder / "revenue-output", exclude_invalid_files=True, partitioning="hive").to_table()
    return [(row["sku"], row["orders"], row["pieces"]) for row in rows.to_pylist()]
