"""TopicCommand (kafka-topics.sh): create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

pytestmark = pytest.mark.kafka

Tool = Callable[..., Any]


@pytest.fixture
def topics(tool: Tool) -> Tool:
    """Runs TopicCommand."""
    return lambda *arguments: tool("TopicCommand", *arguments)


def fresh_name() -> str:
    return f"tools-{uuid4().hex[:12]}"


def described(topics: Tool, name: str) -> tuple[str, list[str]]:
    """The line of the topic, without its id, and the lines of its partitions."""
    answer = topics("--describe", "--topic", name)
    assert answer.code == 0, answer
    head, *partitions = answer.lines
    return re.sub(r"TopicId: [\w-]{22}\t", "", head), [line.strip() for line in partitions]


def partition_line(name: str, partition: int) -> str:
    return f"Topic: {name}\tPartition: {partition}\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: \tLastKnownElr:"


def test_create_and_describe(topics: Tool) -> None:
    name = fresh_name()
    settings = ["--config", "retention.ms=100000", "--config", "cleanup.policy=compact"]
    created = topics("--create", "--topic", name, "--partitions", "3", "--replication-factor", "1", *settings)
    assert (created.code, created.out) == (0, f"Created topic {name}.\n")
    head, partitions = described(topics, name)
    shown = "Configs: cleanup.policy=compact,retention.ms=100000"
    assert head == f"Topic: {name}\tPartitionCount: 3\tReplicationFactor: 1\t{shown}"
    assert partitions == [partition_line(name, number) for number in range(3)]
    assert name in topics("--list").lines
    assert name in topics("--list", "--exclude-internal").lines
    assert topics("--list", "--topic", "tools-.*" + name[-6:]).lines == [name]


def test_create_with_replicas_by_hand(topics: Tool) -> None:
    name = fresh_name()
    assert topics("--create", "--topic", name, "--replica-assignment", "0,0").code == 0
    assert described(topics, name)[1] == [partition_line(name, number) for number in range(2)]


def test_create_it_again(topics: Tool, topic: str) -> None:
    again = topics("--create", "--topic", topic)
    assert again.code == 1 and "exists" in again.out
    assert topics("--create", "--topic", topic, "--if-not-exists").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "bad/name"], "bad/name"),
        (["--topic", "bad", "--replication-factor", "3"], "3"),
        (["--topic", "bad", "--config", "retention.ms=abc"], "retention.ms"),
        (["--topic", "bad", "--config", "no.such.setting=1"], "no.such.setting"),
        (["--topic", "bad", "--replica-assignment", "0,7"], "7"),
    ],
)
def test_create_wrongly(topics: Tool, arguments: list[str], said: str) -> None:
    refused = topics("--create", *arguments)
    assert refused.code == 1 and "Error while executing topic command" in refused.out and said in refused.out
    assert "bad" not in topics("--list").lines


def test_alter(topics: Tool, topic: str) -> None:
    assert topics("--alter", "--topic", topic, "--partitions", "4").code == 0
    assert described(topics, topic)[1] == [partition_line(topic, number) for number in range(4)]
    by_hand = ["--replica-assignment", "0,0,0,0,0"]
    assert topics("--alter", "--topic", topic, "--partitions", "5", *by_hand).code == 0
    assert "PartitionCount: 5" in described(topics, topic)[0]
    shrunk = topics("--alter", "--topic", topic, "--partitions", "3")
    assert shrunk.code == 1 and "5" in shrunk.out
    assert "PartitionCount: 5" in described(topics, topic)[0]


def test_describe_what_is_wrong(topics: Tool, topic: str) -> None:
    """On one healthy broker nothing is; partitions with a single replica are at their minimum."""
    for question in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        answer = topics("--describe", question)
        assert (answer.code, answer.out) == (0, "")
    at_minimum = [line.strip() for line in topics("--describe", "--at-min-isr-partitions").lines]
    assert {partition_line(topic, 0), partition_line(topic, 1)} <= set(at_minimum)


def test_describe_overrides(topics: Tool, topic: str) -> None:
    name = fresh_name()
    assert topics("--create", "--topic", name, "--config", "flush.ms=5").code == 0
    lines = topics("--describe", "--topics-with-overrides").lines
    assert [line for line in lines if name in line and "flush.ms=5" in line]
    assert not [line for line in lines if topic in line]


def test_describe_by_id(topics: Tool, topic: str) -> None:
    topic_id = re.findall(r"TopicId: ([\w-]{22})\t", topics("--describe", "--topic", topic).out)[0]
    assert topics("--describe", "--topic-id", topic_id).lines[0].startswith(f"Topic: {topic}\t")


def test_delete(topics: Tool, topic: str) -> None:
    assert topics("--delete", "--topic", topic).code == 0
    assert topic not in topics("--list").lines


@pytest.mark.parametrize("action", [["--describe"], ["--delete"], ["--alter", "--partitions", "9"]])
def test_unknown_topics(topics: Tool, action: list[str]) -> None:
    refused = topics(*action, "--topic", "tools-unknown")
    assert refused.code == 1 and "does not exist" in refused.out
    assert topics(*action, "--topic", "tools-unknown", "--if-exists").code == 0
