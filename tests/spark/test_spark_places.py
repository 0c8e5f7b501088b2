"""Where Spark runs: a standalone cluster with two workers on this machine, and Spark Connect. No jar, no register."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess

from .conftest import PROJECT, WORKER_ENVIRONMENT
from .filled_topics import Message, fill
from .standalone_cluster import StandaloneCluster

pytestmark = pytest.mark.spark

PROGRAM_S_MAX = 400
ROWS, PARTITIONS = 1000, 3

MakeTopic = Callable[..., str]


@pytest.fixture
def run_program(broker: BrokerProcess, new_topic: MakeTopic, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Runs `topic_program` somewhere on a topic of numbers, and checks what every place must give."""

    def run(where: str) -> dict[str, Any]:
        topic, copy = new_topic(partitions=PARTITIONS), new_topic(partitions=2)
        numbers = [Message(b"%d" % number, partition=number % PARTITIONS) for number in range(ROWS)]
        fill(broker.bootstrap, topic, numbers, **{"linger.ms": 50})
        arguments = [where, broker.bootstrap, topic, copy, str(tmp_path / "checkpoint")]
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.topic_program", *arguments],
            capture_output=True,
            text=True,
            timeout=PROGRAM_S_MAX,
            env={**os.environ, **WORKER_ENVIRONMENT},
            cwd=PROJECT,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-5000:]
        found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        assert found["rows"] == ROWS
        assert found["numbers"] == sum(range(ROWS))
        assert found["copied"] == 2 * ROWS, "once by the batch, once by the stream"
        assert "topic no-such-topic does not exist" in found["refusal"]
        return found

    return run


@pytest.mark.slow
def test_a_standalone_cluster_with_two_workers(run_program: Callable[[str], dict[str, Any]], tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path / "cluster", workers=2, environment=WORKER_ENVIRONMENT) as cluster:
        run_program(cluster.master)
        executors = [path for path in (tmp_path / "cluster").glob("app-*/*") if path.is_dir()]
    assert len(executors) == 2, "each worker ran some of it"


@pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None or importlib.util.find_spec("grpc_status") is None,
    reason="NOT TESTED UNDER SPARK CONNECT: it needs grpcio, grpcio-status and googleapis-common-protos (extra: dev)",
)
def test_spark_connect(run_program: Callable[[str], dict[str, Any]]) -> None:
    found = run_program("connect:local[2]")
    assert found["kind"].startswith("pyspark.sql.connect")
