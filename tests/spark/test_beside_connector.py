"""Our source gives what Spark's own Kafka connector gives, and goes on with a checkpoint that it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.broker_process import BrokerProcess

from .beside_connector_program import CHOICES, OTHER, TOPIC
from .conftest import BROKER_SETTINGS, PROJECT, WORKER_ENVIRONMENT
from .filled_topics import Message, fill, fill_transaction

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RUN_S_MAX = 500


def test_both_find_the_same_and_one_goes_on_where_the_other_stopped(connector_jars: str, tmp_path: Path) -> None:
    settings = {**BROKER_SETTINGS, "auto.create.topics.enable": "true", "num.partitions": "2", "log.retention.ms": "-1"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        _fill_topics(broker.bootstrap)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.spark.beside_connector_program",
                broker.bootstrap,
                connector_jars,
                str(tmp_path),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S_MAX,
            env={**os.environ, **WORKER_ENVIRONMENT},
            cwd=PROJECT,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    for name in CHOICES:
        only_theirs, only_ours, rows = found[name]
        assert (only_theirs, only_ours) == (0, 0), name
        assert rows > 0, name
    begun, gone_on, rows, different = found["stream"]
    assert begun == 1 and gone_on > 1
    assert rows == different == found["all"][2]


def _fill_topics(bootstrap: str) -> None:
    headers: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", None)]
    messages = [
        Message(b"%d" % n, b"k%d" % n if n % 3 else None, n % 2, 1_000_000 + n, headers if n % 5 == 0 else None)
        for n in range(20)
    ]
    fill(bootstrap, TOPIC, messages)
    fill(bootstrap, TOPIC, [Message(None, b"tombstone", 0, 1_000_020), Message(b"", b"", 1, 1_000_021)])
    fill_transaction(bootstrap, TOPIC, [Message(b"aborted", timestamp_ms=1_000_022)], "a", ending="abort")
    fill_transaction(bootstrap, TOPIC, [Message(b"committed", timestamp_ms=1_000_023)], "b", ending="commit")
    fill(bootstrap, OTHER, [Message(b"other", timestamp_ms=1_000_000)])
