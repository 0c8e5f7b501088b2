"""Every Spark example runs, to its end, against a running broker; and the declared pipeline does what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import columnar
from penstock.testing.broker_process import BrokerProcess

from .conftest import WORKER_ENVIRONMENT, MakeTopic

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT_S = 180

pytestmark = pytest.mark.spark


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **WORKER_ENVIRONMENT, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("backfill", ["first run: 10000 rows", "second run: 10000 rows"]),
        ("pipeline", ["finished with bad records: 1", "[('cup', 1), ('tea', 5)]"]),
        pytest.param("word_count", ["|   a|  400|"], marks=pytest.mark.slow),
        pytest.param("join_streams", ["50 of 100 orders are paid"], marks=pytest.mark.slow),
        pytest.param("topic_to_parquet", ["1000 rows", "2000 rows in Parquet, 2000"], marks=pytest.mark.slow),
    ],
)
def test_an_example(example: str, said: list[str], broker: BrokerProcess) -> None:
    printed = run(sys.executable, EXAMPLES / "spark" / f"{example}.py", broker.bootstrap)
    assert all(text in printed for text in said), printed


@pytest.mark.slow
def test_a_declared_pipeline(broker: BrokerProcess, new_topic: MakeTopic, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="spark-pipelines needs pyyaml")
    folder = tmp_path / "declarative"
    shutil.copytree(EXAMPLES / "spark" / "declarative", folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("storage: storage-root", f"storage: file://{tmp_path}/storage"))
    code = folder / "transformations" / "clicks.py"
    clicks, sale = new_topic(), new_topic()
    code.write_text(
        code.read_text().replace('subscribe="clicks"', f'subscribe="{clicks}"').replace('"sale-clicks"', f'"{sale}"')
    )
    pages = [f'{{"page": "{"sale" if n % 3 == 0 else "other"}", "visitor": {n}}}' for n in range(30)]
    columnar.write(pa.table({"click": pages}), clicks, broker.bootstrap, value="click")
    program = Path(sys.executable).with_name("spark-pipelines")
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    run(program, "run", "--spec", spec, PENSTOCK_BOOTSTRAP=broker.bootstrap, PATH=path)
    assert columnar.read(broker.bootstrap, sale).read_all().num_rows == 10


def test_every_example_is_in_the_list() -> None:
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for example in [*(EXAMPLES / "spark").glob("*.py"), EXAMPLES / "spark" / "declarative" / "spark-pipeline.yml"]:
        name = example.relative_to(EXAMPLES).as_posix()
        assert f"[{name}]({name})" in listed
