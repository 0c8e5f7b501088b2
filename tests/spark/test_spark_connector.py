"""Spark's own Kafka connector works against Penstock as it does against Apache Kafka: source and sink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("connector_program.py")
RUN_S_MAX = 300


def test_it_writes_streams_and_reads(connector_jars: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings={"num.partitions": "3"}) as broker:
        done = subprocess.run(
            [sys.executable, PROGRAM, broker.bootstrap, connector_jars, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S_MAX,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["written"] == found["copied"] == 20_000
    assert found["partitions"] == [0, 1, 2]
    assert found["batches"] == [1, 1]
    assert found["starts"] == 20_000 - 5
