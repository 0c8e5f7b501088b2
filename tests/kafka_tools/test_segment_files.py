"""DumpLogSegments reads the files that a broker wrote: segments, indexes, snapshots, after a stop and a kill."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

SEGMENT_BYTES = 1 << 20
RECORDS = 40_000
#: What the tool prints about files that do not fit together; it exits with 0 all the same.
COMPLAINTS = ("Mismatches", "mismatch", "not found", "Found timestamp", "out of order", "isvalid: false", "is empty")


@pytest.fixture(params=["stopped", "killed"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, tool_runner: Any) -> Path:
    """The folder of a partition with several segments, of a broker that ended."""
    settings = {"log.segment.bytes": str(SEGMENT_BYTES), "log.index.interval.bytes": "4096"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        server = ["--bootstrap-server", broker.bootstrap]
        created = tool_runner.run("TopicCommand", *server, "--create", "--topic", "dumped", "--partitions", "1")
        assert created.code == 0
        size = ["--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"]
        sent = tool_runner.run("ProducerPerformance", *server, "--topic", "dumped", *size)
        assert sent.code == 0, sent
        if request.param == "killed":
            broker.kill()
            broker.start()
        broker.stop()
    return broker.data / "logs" / "dumped-0"


def dump(tool_runner: Any, files: list[Path], *options: str) -> Any:
    answer = tool_runner.run("DumpLogSegments", "--files", ",".join(map(str, files)), *options)
    assert answer.code == 0, answer.err
    assert not [word for word in COMPLAINTS if word in answer.out], answer.out[-2000:]
    return answer


def test_kafka_reads_our_files(folder: Path, tool_runner: Callable[..., Any]) -> None:
    logs = sorted(folder.glob("*.log"))
    assert len(logs) >= 4
    offsets = []
    for log in logs:
        dumped = dump(tool_runner, [log], "--deep-iteration")
        offsets += [int(number) for number in re.findall(r"^\| offset: (\d+)", dumped.out, re.MULTILINE)]
    assert offsets == list(range(RECORDS))
    closed = logs[:-1]
    for suffix in (".index", ".timeindex"):
        indexes = [log.with_suffix(suffix) for log in closed]
        dump(tool_runner, indexes, "--verify-index-only")
        sane = dump(tool_runner, indexes, "--index-sanity-check")
        assert sane.out.count("passed sanity check") == len(indexes)
    entries = dump(tool_runner, [logs[0].with_suffix(".index")]).out
    assert len(re.findall(r"^offset: \d+ position: \d+$", entries, re.MULTILINE)) > 10
    snapshots = sorted(folder.glob("*.snapshot"))
    assert snapshots
    producers = dump(tool_runner, snapshots[-1:]).out
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastTimestamp", producers), producers
