"""Tools that read as members of a group: the console, the performance test, the verifiable consumer; both protocols."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

pytestmark = pytest.mark.kafka

ON_APACHE_KAFKA_TOO = True

Tool = Callable[..., Any]
JavaLines = Callable[..., Iterator[str]]
RECORDS = 1000
#: The way to balance a group, as options for the verifiable consumer.
BALANCING = {
    "range": ["--group-protocol", "classic"],
    "cooperative-sticky": ["--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"],
    "uniform": ["--group-protocol", "consumer", "--group-remote-assignor", "uniform"],
    "range on the server": ["--group-protocol", "consumer", "--group-remote-assignor", "range"],
}


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:8]}"


@pytest.fixture
def filled(topic: str, bootstrap: str) -> str:
    """A topic with the same number of records in both partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(30) == 0
    return topic


def lag(tool: Tool, group: str) -> int:
    lines = tool("ConsumerGroupCommand", "--describe", "--group", group).lines
    return sum(int(line.split()[5]) for line in lines if line.startswith(group))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_console_consumer_of_a_group(tool: Tool, filled: str, group: str, protocol: str) -> None:
    """What one run has read and committed the next one does not see."""
    options = [
        "--topic",
        filled,
        "--group",
        group,
        "--from-beginning",
        "--command-property",
        f"group.protocol={protocol}",
    ]
    first = tool("ConsoleConsumer", *options, "--max-messages", "300", "--timeout-ms", "20000")
    assert "Processed a total of 300 messages" in first.err
    assert lag(tool, group) == RECORDS - 300
    second = tool("ConsoleConsumer", *options, "--max-messages", "700", "--timeout-ms", "20000")
    assert sorted(map(int, first.lines + second.lines)) == list(range(RECORDS))
    assert lag(tool, group) == 0


def test_console_consumer_with_a_pattern(tool: Tool, filled: str, group: str) -> None:
    options = ["--include", filled[:-2] + ".*", "--group", group, "--from-beginning"]
    answer = tool("ConsoleConsumer", *options, "--max-messages", str(RECORDS), "--timeout-ms", "20000")
    assert sorted(map(int, answer.lines)) == list(range(RECORDS))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_performance(tool: Tool, filled: str, group: str, protocol: str) -> None:
    options = ["--topic", filled, "--group", group, "--num-records", str(RECORDS), "--hide-header"]
    answer = tool("ConsumerPerformance", *options, "--command-property", f"group.protocol={protocol}")
    assert answer.code == 0, answer
    figures = answer.lines[-1].split(", ")
    assert int(figures[4]) == RECORDS


@pytest.mark.parametrize(
    "balancing",
    [
        "range",
        "uniform",
        *(pytest.param(name, marks=pytest.mark.slow) for name in BALANCING.keys() - {"range", "uniform"}),
    ],
)
def test_verifiable_consumers(
    java_lines: JavaLines, tool: Tool, bootstrap: str, filled: str, group: str, balancing: str
) -> None:
    """One reads everything; another comes and each has one partition; both go on."""
    options = ["--bootstrap-server", bootstrap, "--topic", filled, "--group-id", group, *BALANCING[balancing]]
    first = map(json.loads, java_lines("org.apache.kafka.tools.VerifiableConsumer", *options, "--verbose"))
    assert _partitions_when(first, 2) == [0, 1]
    read = _read(first, RECORDS)
    assert sorted(read) == list(range(RECORDS))
    assert next(event for event in first if event["name"] == "offsets_committed")["success"]
    second = map(json.loads, java_lines("org.apache.kafka.tools.VerifiableConsumer", *options, "--verbose"))
    (theirs,) = _partitions_when(second, 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(50):
        producer.produce(filled, str(number), partition=theirs)
    assert producer.flush(30) == 0
    assert _read(second, 50) == list(range(50))
    assert next(event for event in second if event["name"] == "offsets_committed")["success"]


def _partitions_when(events: Iterator[dict[str, Any]], count: int) -> list[int]:
    """The partitions of the first assignment with so many."""
    for event in events:
        if event["name"] == "partitions_assigned" and len(event["partitions"]) == count:
            return sorted(partition["partition"] for partition in event["partitions"])
    raise AssertionError("the consumer ended")


def _read(events: Iterator[dict[str, Any]], count: int) -> list[int]:
    values: list[int] = []
    while len(values) < count:
        event = next(events)
        if event["name"] == "record_data":
            values.append(int(event["value"]))
    return values
