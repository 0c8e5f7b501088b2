"""The memory of a task stays flat, however large the range is that it reads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from penstock.testing.broker_process import BrokerProcess

from .filled_topics import fill

pytestmark = pytest.mark.clients

VALUE_BYTES = 10_000
SMALL, LARGE = 10_000, 40_000
GROWTH_MB_MAX = 60

PROGRAM = """
import resource
import sys

from penstock.spark.options import parse_batch_options
from penstock.spark.source import PenstockReader

bootstrap, topic, ends = sys.argv[1:]
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "endingOffsets": ends}
reader = PenstockReader(parse_batch_options(options))
rows = sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_a_task_holds_no_more_of_a_large_range_than_of_a_small_one(
    broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    fill(broker.bootstrap, topic, (b"%d" % number * (VALUE_BYTES // 5) for number in range(10_000, 10_000 + LARGE)))

    def peak_mb(count: int) -> int:
        arguments = [broker.bootstrap, topic, json.dumps({topic: {"0": count}})]
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr
        rows, megabytes = map(int, ended.stdout.split())
        assert rows == count
        return megabytes

    assert peak_mb(LARGE) - peak_mb(SMALL) < GROWTH_MB_MAX, "four times as much to read"
