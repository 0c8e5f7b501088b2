"""`penstock pipeline run` is killed in the middle and started again: every row is in every sink exactly once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.pipelines.running_errors import TOO_BUSY
from penstock.testing.broker_process import BrokerProcess

from ..spark.committed_rows import committed_messages, settled_values
from ..spark.conftest import WORKER_ENVIRONMENT
from ..spark.filled_topics import Message, fill
from .whole_pipelines import document, finish, json_of, read

pytestmark = pytest.mark.spark

ROWS = 400
ROWS_PER_BATCH = 20
PROGRESS_S_MAX = 180.0
POLL_S = 0.05
END_S_MAX = 30.0


def parts(source: str, target: str, rows_per_batch: int | None) -> dict[str, Any]:
    options = {"options": {"maxOffsetsPerTrigger": str(rows_per_batch)}} if rows_per_batch else {}
    schema = "id long, sku string, at timestamp"
    return {
        "sources": {
            "orders": {"topic": source, "format": "json", "schema": schema, **options},
            "items": {"table": "sqlite:shop.db/items"},
        },
        "steps": {
            "known": "select id, orders.sku, title, at from orders join items using (sku)",
            "sums": "select sku, count(*) as n, sum(id) as total from orders group by sku",
        },
        "sinks": {
            "to_topic": {"from": "known", "topic": target, "key": "id", "format": "json"},
            "to_table": {"from": "known", "table": "sqlite:known.db/known", "create": True},
            "to_sums": {
                "from": "sums",
                "table": "sqlite:sums.db/sums",
                "mode": "upsert",
                "keys": "sku",
                "create": True,
            },
            "to_files": {"from": "known", "parquet": "known", "date": "at"},
        },
    }


def rows_of(file: Path, select: str) -> list[tuple[Any, ...]]:
    """None are there as long as there is no table."""
    if not file.exists():
        return []
    connection = sqlite3.connect(file, timeout=30)
    try:
        return connection.execute(select).fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        connection.close()


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock.cli", "pipeline", "run", "--once", "--json", "--master", "local[2]"]
    command += ["--state", str(folder / "state"), str(folder / "shop.yaml")]
    environment = {**os.environ, **WORKER_ENVIRONMENT}
    with (folder / "printed").open("ab") as printed:
        return subprocess.Popen(
            command, env=environment, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """The driver, its Java and its workers, as when the machine dies."""
    with suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(END_S_MAX)


def run_until(folder: Path, broker: BrokerProcess, target: str, more: int) -> bool:
    """Run it, and kill it as soon as so many more rows are in each sink; False if it ended before."""

    def written() -> list[int]:
        known = len(rows_of(folder / "known.db", "select id from known"))
        counted = sum(n for (n,) in rows_of(folder / "sums.db", "select n from sums"))
        files = len(list((folder / "known").glob("date=*/*.parquet"))) * ROWS_PER_BATCH
        return [known, counted, files, len(committed_messages(broker.bootstrap, target))]

    before = written()
    process, until_s = start(folder), time.monotonic() + PROGRESS_S_MAX
    try:
        while any(now < past + more for now, past in zip(written(), before, strict=True)):
            assert time.monotonic() < until_s, (written(), (folder / "printed").read_text()[-2000:])
            if process.poll() is not None:
                printed = (folder / "printed").read_text()[-2000:]
                assert process.returncode == 0 or TOO_BUSY in printed, printed
                return False
            time.sleep(POLL_S)
        return True
    finally:
        kill(process)


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_killed_and_started_again(
    spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path, kills: int
) -> None:
    source, target = new_topic(partitions=2), new_topic()
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.executescript(
        "create table items (sku text, title text); insert into items values ('0', 'A'), ('1', 'B')"
    )
    connection.close()
    day = "2026-01-01T00:00:00Z"
    fill(
        broker.bootstrap,
        source,
        [Message(json_of(id=n, sku=str(n % 2), at=day), partition=n % 2) for n in range(ROWS)],
    )
    slow = document(broker, **parts(source, target, ROWS_PER_BATCH))
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(slow))
    was_killed = [run_until(tmp_path, broker, target, more=ROWS_PER_BATCH) for _ in range(kills)]
    if not any(was_killed):
        pytest.skip("NOT TESTED WITH A KILL: the machine is too busy for Spark to start its workers")
    finish(spark, read(tmp_path, broker, **parts(source, target, None)), tmp_path)
    told = [json.loads(each) for each in settled_values(broker.bootstrap, target)]
    assert sorted(each["id"] for each in told) == list(range(ROWS))
    assert rows_of(tmp_path / "known.db", "select id from known order by id") == [(n,) for n in range(ROWS)]
    even, odd = range(0, ROWS, 2), range(1, ROWS, 2)
    expected = [("0", len(even), sum(even)), ("1", len(odd), sum(odd))]
    assert rows_of(tmp_path / "sums.db", "select sku, n, total from sums order by sku") == expected
    files = spark.read.parquet(str(tmp_path / "known")).collect()
    assert sorted((row.id, row.title) for row in files) == [(n, "AB"[n % 2]) for n in range(ROWS)]
