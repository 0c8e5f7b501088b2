"""`python -m bench.spark`: Spark reads and writes through Penstock's data source and through its own Kafka connector,
in one session, turn by turn, on the same broker and topic.

Needs Java; the connector's jars come from Maven Central (`scripts/fetch-spark-connector`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from bench import machine
from bench.spark_program import OURS, PARTITIONS, THEIRS
from bench.topics import Topics
from bench.ways import Row, Ways
from penstock import columnar
from penstock.testing.broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[1]
TMPFS = Path("/dev/shm")
FILLED_AT_ONCE = 100_000
ROW_BYTES = 200
ROWS = (
    Row("spark-read", "rows_s", "million rows/s", 1e-6, at_least=1.5),
    Row("spark-stream", "rows_s", "million rows/s", 1e-6, at_least=1.5),
    Row("spark-write", "rows_s", "million rows/s", 1e-6, at_least=1.5),
    Row("spark-write-once", "rows_s", "million rows/s", 1e-6, at_least=1.2),
    Row("spark-small-batch", "batch_ms", "ms a batch"),
    Row("spark-small-batch", "offsets_ms", "of these for offsets"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rows", type=int, default=4_000_000, help="of 200 bytes, in the topic (4,000,000)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console, progress = Console(width=None if sys.stdout.isatty() else 140), Console(stderr=True)
    jars = _jars(console)
    ways = Ways(OURS)
    folder = TMPFS if TMPFS.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder, ignore_cleanup_errors=True) as scratch,
        BrokerProcess(Path(scratch) / "data") as broker,
    ):
        progress.print("filling the topic", highlight=False)
        _fill(broker.bootstrap, options.rows)
        for sample in _run(broker.bootstrap, jars, scratch, options.rows, options.rounds):
            progress.print(f"round {sample['round'] + 1} · {sample['item']} · {sample['way']}", highlight=False)
            ways.add(sample["item"], sample["way"], sample["round"], sample["figures"])
    ways.show("Spark, 200-byte rows, on the same broker", ROWS, [THEIRS] if jars else [], console)
    console.print(" · ".join(str(value) for value in machine.description().values()))
    return 0


def _jars(console: Console) -> str:
    fetched = subprocess.run([ROOT / "scripts" / "fetch-spark-connector"], capture_output=True, text=True, check=False)
    if fetched.returncode:
        console.print(f"Spark's own connector is left out: {fetched.stderr.strip()}")
        return ""
    return ",".join(fetched.stdout.split())


def _fill(bootstrap: str, rows: int) -> None:
    def made() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, FILLED_AT_ONCE):
            numbers = range(first, min(first + FILLED_AT_ONCE, rows))
            keys = pa.array([b"%d" % number for number in numbers], pa.binary())
            values = pa.array([b"%020d" % number + b"x" * (ROW_BYTES - 20) for number in numbers], pa.binary())
            yield pa.record_batch({"key": keys, "value": values})

    Topics(int(bootstrap.rpartition(":")[2])).create("rows", PARTITIONS)
    columnar.write(made(), "rows", bootstrap, key="key", value="value")


def _run(bootstrap: str, jars: str, folder: str, rows: int, rounds: int) -> Iterator[dict]:  # type: ignore[type-arg]
    command = [sys.executable, "-m", "bench.spark_program", bootstrap, jars, folder, str(rows), str(rounds)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if program.returncode:
        raise SystemExit(f"the Spark program ended with {program.returncode}")


if __name__ == "__main__":
    sys.exit(main())
