"""GetOffsetShell, DeleteRecordsCommand and LogDirsCommand: where a partition begins and ends, and what it takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

Tool = Callable[..., Any]


@pytest.fixture
def filled(tool: Tool, topic: str) -> str:
    """A topic with ten messages in partition 0 and none in partition 1."""
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    lines = "".join(f"key:message {number}\n" for number in range(10))
    assert tool("ConsoleProducer", "--topic", topic, *keyed, stdin=lines).code == 0
    return topic


def offsets(tool: Tool, topic: str, *arguments: str) -> list[str]:
    answer = tool("GetOffsetShell", "--topic", topic, *arguments)
    assert answer.code == 0, answer
    return sorted(line.removeprefix(f"{topic}:") for line in answer.lines)


def full_partition(tool: Tool, topic: str) -> int:
    return next(int(line.split(":")[0]) for line in offsets(tool, topic) if line.endswith(":10"))


def test_offsets(tool: Tool, filled: str) -> None:
    full = full_partition(tool, filled)
    empty = 1 - full
    assert offsets(tool, filled) == sorted([f"{full}:10", f"{empty}:0"])
    for end in ("-1", "latest"):
        assert offsets(tool, filled, "--time", end) == sorted([f"{full}:10", f"{empty}:0"])
    for start in ("-2", "earliest", "-4", "earliest-local"):
        assert offsets(tool, filled, "--time", start) == ["0:0", "1:0"]
    for largest in ("-3", "max-timestamp"):
        (found,) = offsets(tool, filled, "--time", largest)
        assert found.startswith(f"{full}:")
    for tiered in ("-5", "latest-tiered", "-6", "earliest-pending-upload"):
        assert offsets(tool, filled, "--time", tiered) == []
    assert offsets(tool, filled, "--time", "0") == [f"{full}:0"]
    assert offsets(tool, filled, "--time", "99999999999999") == []
    assert offsets(tool, filled, "--partitions", str(full)) == [f"{full}:10"]
    chosen = tool("GetOffsetShell", "--topic-partitions", f"{filled}:{full}")
    assert chosen.lines == [f"{filled}:{full}:10"]


def test_offsets_of_an_unknown_topic(tool: Tool) -> None:
    answer = tool("GetOffsetShell", "--topic", "tools-unknown")
    assert answer.code == 1 and "Could not match any topic-partitions" in answer.err


def test_delete_records(tool: Tool, filled: str, tmp_path: Path) -> None:
    full = full_partition(tool, filled)
    wanted = tmp_path / "offsets.json"

    def delete(offset: int) -> list[str]:
        where = {"topic": filled, "partition": full, "offset": offset}
        wanted.write_text(json.dumps({"partitions": [where], "version": 1}))
        answer = tool("DeleteRecordsCommand", "--offset-json-file", wanted)
        assert answer.code == 0, answer
        return answer.lines[2:]

    assert delete(4) == [f"partition: {filled}-{full}\tlow_watermark: 4"]
    assert offsets(tool, filled, "--time", "-2") == sorted([f"{full}:4", f"{1 - full}:0"])
    assert delete(2) == [f"partition: {filled}-{full}\tlow_watermark: 4"]
    (refused,) = delete(11)
    assert "OffsetOutOfRangeException" in refused
    assert delete(-1) == [f"partition: {filled}-{full}\tlow_watermark: 10"]
    assert offsets(tool, filled, "--time", "0") == []


def test_log_dirs(tool: Tool, filled: str, broker: BrokerProcess) -> None:
    answer = tool("LogDirsCommand", "--describe", "--topic-list", filled)
    assert answer.code == 0, answer
    (described,) = json.loads(answer.lines[-1])["brokers"]
    (folder,) = described["logDirs"]
    assert (described["broker"], folder["error"], folder["logDir"]) == (0, None, str(broker.data / "logs"))
    assert {entry["partition"] for entry in folder["partitions"]} == {f"{filled}-0", f"{filled}-1"}
    for entry in folder["partitions"]:
        files = (broker.data / "logs" / entry["partition"]).glob("*.log")
        assert entry["size"] == sum(file.stat().st_size for file in files)
        assert entry["offsetLag"] == 0 and not entry["isFuture"]
    assert sum(entry["size"] for entry in folder["partitions"]) > 0


def test_log_dirs_of_a_broker_that_is_not_there(tool: Tool) -> None:
    answer = tool("LogDirsCommand", "--describe", "--broker-list", "0,9")
    assert answer.code == 1 and "do not exist" in answer.err
