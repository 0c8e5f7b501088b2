"""`penstock topic` against a running broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

pytestmark = pytest.mark.clients

Command = Callable[..., Any]


def described(on_broker: Command, topic: str) -> dict[str, Any]:
    [document] = json.loads(on_broker("topic", "describe", topic, "--json").out)
    assert isinstance(document, dict)
    return document


def test_a_new_topic_is_listed_with_its_partitions(on_broker: Command, topic: str) -> None:
    assert f"{topic}\t2\t1" in on_broker("topic", "list").lines
    rows = json.loads(on_broker("topic", "list", "--json").out)
    assert {"name": topic, "partitions": 2, "replication_factor": 1, "internal": False} in rows


def test_create_twice(on_broker: Command, topic: str) -> None:
    again = on_broker("topic", "create", topic)
    assert again.code == 5
    assert again.err == f"penstock: topic '{topic}' already exists\n"
    content = on_broker("topic", "create", topic, "--if-not-exists")
    assert (content.code, content.out) == (0, f"topic {topic} is already there\n")


def test_create_with_settings(on_broker: Command) -> None:
    name = f"cli-{uuid4().hex}"
    outcome = on_broker("topic", "create", name, "-p", "3", "-r", "1", "-c", "retention.ms=60000", "-c", "flush.ms=5")
    assert outcome.out == f"created topic {name}\n"
    document = described(on_broker, name)
    assert len(document["partitions"]) == 3
    assert document["config"] == {"retention.ms": "60000", "flush.ms": "5"}
    on_broker("topic", "delete", name, "-y")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bad/name"], "bad/name"),
        ([".."], ".."),
        (["x" * 300], "topic"),
        (["cli-refused", "--replication-factor", "50"], "50"),
        (["cli-refused", "--config", "no.such.setting=1"], "no.such.setting"),
        (["cli-refused", "--config", "retention.ms=soon"], "retention.ms"),
    ],
)
def test_what_the_broker_refuses(on_broker: Command, arguments: list[str], message: str) -> None:
    outcome = on_broker("topic", "create", *arguments)
    assert outcome.code == 1
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_describe(on_broker: Command, topic: str) -> None:
    on_broker("produce", topic, "--partition", "1", stdin=b"one\ntwo\n")
    document = described(on_broker, topic)
    assert (document["name"], document["internal"], document["config"]) == (topic, False, {})
    first, second = document["partitions"]
    assert (first["start_offset"], first["end_offset"], second["end_offset"]) == (0, 0, 2)
    assert first["leader"] in first["replicas"] and first["isr"] == first["replicas"]
    assert (first["size_bytes"], second["size_bytes"] > 0) == (0, True)
    text = on_broker("topic", "describe", topic).lines
    assert text[0].startswith(f"{topic}: 2 partitions, replication factor 1, id ")
    assert text[1].split("\t") == ["PARTITION", "LEADER", "REPLICAS", "ISR", "ELIGIBLE", "START", "END", "BYTES"]
    assert text[3].split("\t")[4:7] == ["-", "0", "2"]


def test_describe_without_a_name_shows_all(on_broker: Command, topic: str) -> None:
    names = [document["name"] for document in json.loads(on_broker("topic", "describe", "--json").out)]
    assert topic in names


def test_an_unknown_topic_gets_close_names(on_broker: Command, topic: str) -> None:
    for arguments in (["topic", "describe"], ["topic", "alter", "-p", "5"], ["topic", "delete", "-y"], ["consume"]):
        outcome = on_broker(*arguments, topic + "x")
        assert outcome.code == 4
        assert f"there is no topic '{topic}x' (did you mean '{topic}'" in outcome.err


def test_alter(on_broker: Command, topic: str) -> None:
    outcome = on_broker("topic", "alter", topic, "--partitions", "4", "--config", "retention.ms=1000")
    assert outcome.out == f"altered topic {topic}\n"
    document = described(on_broker, topic)
    assert (len(document["partitions"]), document["config"]) == (4, {"retention.ms": "1000"})
    assert on_broker("topic", "alter", topic, "--delete-config", "retention.ms").code == 0
    assert described(on_broker, topic)["config"] == {}
    fewer = on_broker("topic", "alter", topic, "--partitions", "1")
    assert fewer.code == 1
    assert topic in fewer.err


def test_delete(on_broker: Command, topic: str) -> None:
    assert on_broker("topic", "delete", topic).out == f"deleted topic {topic}\n"
    assert topic not in on_broker("topic", "list").out
    assert on_broker("topic", "delete", topic).code == 4
    assert on_broker("topic", "delete", topic, "--if-exists").code == 0
