"""Tools that write and read records: the console, the performance test, the verifiable producer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

Tool = Callable[..., Any]
JavaLines = Callable[..., Iterator[str]]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def properties(kind: str, **values: str) -> list[str]:
    """`--formatter-property print.key=true` and the like; underscores stand for dots."""
    return [
        word for name, value in values.items() for word in (f"--{kind}-property", f"{name.replace('_', '.')}={value}")
    ]


def consume(tool: Tool, topic: str, count: int, *arguments: str) -> list[str]:
    """The first so many messages of partition 0."""
    where = ["--topic", topic, "--partition", "0", "--offset", "earliest"]
    limits = ["--max-messages", str(count), "--timeout-ms", "20000"]
    answer = tool("ConsoleConsumer", *where, *limits, *arguments)
    assert answer.code == 0, answer
    assert f"Processed a total of {count} messages" in answer.err
    return answer.lines


def end_offsets(tool: Tool, topic: str) -> dict[int, int]:
    answer = tool("GetOffsetShell", "--topic", topic)
    assert answer.code == 0, answer
    return {int(partition): int(offset) for _, partition, offset in (line.split(":") for line in answer.lines)}


@pytest.fixture
def one_partition(tool: Tool, topic: str) -> str:
    """A fresh topic with one partition."""
    assert tool("TopicCommand", "--create", "--topic", f"{topic}-1", "--partitions", "1").code == 0
    return f"{topic}-1"


def test_console(tool: Tool, one_partition: str) -> None:
    reader = properties("reader", parse_key="true", parse_headers="true", key_separator=":", null_marker="NULL")
    text = "trace:1,trace:2\tk1:first\nempty:\tk2:second\nnone:NULL\tk3:NULL\n"
    assert tool("ConsoleProducer", "--topic", one_partition, *reader, stdin=text).code == 0
    shown = properties("formatter", print_key="true", print_headers="true", print_offset="true", print_partition="true")
    assert consume(tool, one_partition, 3, *shown) == [
        "Partition:0\tOffset:0\ttrace:1,trace:2\tk1\tfirst",
        "Partition:0\tOffset:1\tempty:\tk2\tsecond",
        "Partition:0\tOffset:2\tnone:null\tk3\tnull",
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_console_with_compression(tool: Tool, one_partition: str, codec: str) -> None:
    text = "".join(f"message {number}\n" for number in range(50))
    sent = tool("ConsoleProducer", "--topic", one_partition, "--compression-codec", codec, stdin=text)
    assert sent.code == 0, sent
    assert consume(tool, one_partition, 50) == text.splitlines()


def test_console_from_an_offset(tool: Tool, one_partition: str) -> None:
    assert tool("ConsoleProducer", "--topic", one_partition, stdin="a\nb\nc\n").code == 0
    where = ["--topic", one_partition, "--partition", "0", "--offset", "1"]
    answer = tool("ConsoleConsumer", *where, "--max-messages", "2", "--isolation-level", "read_committed")
    assert answer.lines == ["b", "c"]


@pytest.mark.parametrize(
    "codec", [pytest.param(name, marks=pytest.mark.slow if name != "lz4" else ()) for name in CODECS]
)
@pytest.mark.parametrize("acks", ["all", pytest.param("1", marks=pytest.mark.slow)])
def test_producer_performance(tool: Tool, topic: str, codec: str, acks: str) -> None:
    """A hundred thousand records: idempotent with acks=all, which is the default."""
    size = ["--num-records", "100000", "--record-size", "100", "--throughput", "-1"]
    settings = ["--command-property", f"compression.type={codec}", f"acks={acks}"]
    answer = tool("ProducerPerformance", "--topic", topic, *size, *settings)
    assert answer.code == 0, answer
    assert answer.lines[-1].startswith("100000 records sent, ")
    assert sum(end_offsets(tool, topic).values()) == 100_000


@pytest.mark.slow
def test_producer_performance_with_large_records(tool: Tool, topic: str) -> None:
    size = ["--num-records", "300", "--record-size", "1000000", "--throughput", "-1"]
    answer = tool("ProducerPerformance", "--topic", topic, *size)
    assert answer.code == 0, answer
    assert sum(end_offsets(tool, topic).values()) == 300


def test_verifiable_producer(java_lines: JavaLines, broker: BrokerProcess, tool: Tool, topic: str) -> None:
    options = ["--topic", topic, "--max-messages", "1000", "--acks", "-1"]
    lines = java_lines("org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", broker.bootstrap, *options)
    events = [json.loads(line) for line in lines]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert sorted(int(event["value"]) for event in sent) == list(range(1000))
    assert len({(event["partition"], event["offset"]) for event in sent}) == 1000
    summary = next(event for event in events if event["name"] == "tool_data")
    assert (summary["sent"], summary["acked"]) == (1000, 1000)
    assert sum(end_offsets(tool, topic).values()) == 1000


def test_replica_verification(java_lines: JavaLines, broker: BrokerProcess, tool: Tool, one_partition: str) -> None:
    """It fetches as a debugging replica would, and goes on until it is stopped."""
    assert tool("ConsoleProducer", "--topic", one_partition, stdin="a\nb\nc\n").code == 0
    options = ["--time", "-2", "--report-interval-ms", "200", "--topics-include", one_partition]
    lines = java_lines("org.apache.kafka.tools.ReplicaVerificationTool", "--broker-list", broker.bootstrap, *options)
    report = next(line for line in lines if "max lag" in line)
    assert re.search(rf"max lag is 0 for partition {one_partition}-0 at offset \d+ among 1 partitions", report)
