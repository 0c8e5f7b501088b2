"""`penstock config` against a running broker, and the reference, which needs none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.mark.clients
def test_set_list_describe_unset_on_a_topic(on_broker: Command, topic: str) -> None:
    outcome = on_broker("config", "set", "--topic", topic, "retention.ms=60000", "cleanup.policy=compact")
    assert outcome.out == f"set retention.ms, cleanup.policy on topic '{topic}'\n"
    assert on_broker("config", "list", "--topic", topic).lines[1:] == [
        f"topic {topic}\tcleanup.policy\tcompact\ttopic",
        f"topic {topic}\tretention.ms\t60000\ttopic",
    ]
    assert f"topic {topic}\tretention.ms\t60000\ttopic" in on_broker("config", "list").lines
    shown = on_broker("config", "describe", "--topic", topic, "cleanup.policy").lines
    assert shown[0] == "cleanup.policy=compact (from: topic)"
    assert "  log.cleanup.policy=delete (built in)" in shown
    assert on_broker("config", "unset", "--topic", topic, "cleanup.policy", "retention.ms").code == 0
    nothing = on_broker("config", "list", "--topic", topic)
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing was set" in nothing.err


@pytest.mark.clients
def test_inherited_values_and_json(on_broker: Command, topic: str) -> None:
    rows = json.loads(on_broker("config", "list", "--topic", topic, "--all", "--json").out)
    [row] = [row for row in rows if row["name"] == "retention.ms"]
    assert (row["type"], row["resource"], row["value"]) == ("topic", topic, "604800000")
    assert row["source"] == "DEFAULT_CONFIG"
    [same] = json.loads(on_broker("config", "describe", "--topic", topic, "retention.ms", "--json").out)
    assert same == row


@pytest.mark.clients
def test_settings_of_a_broker_and_of_all(on_broker: Command, topic: str) -> None:
    broker = str(broker_id(on_broker, topic))
    try:
        assert on_broker("config", "set", "--broker-defaults", "log.retention.ms=7000000").code == 0
        assert on_broker("config", "set", "--broker", broker, "log.retention.ms=8000000").code == 0
        listed = on_broker("config", "list").lines
        assert "all brokers\tlog.retention.ms\t7000000\tbroker defaults" in listed
        assert f"broker {broker}\tlog.retention.ms\t8000000\tbroker" in listed
        shown = on_broker("config", "describe", "--broker", broker, "log.retention.ms").lines
        assert shown[0] == "log.retention.ms=8000000 (from: broker)"
        assert "  log.retention.hours=168 (built in)" in shown
    finally:
        assert on_broker("config", "unset", "--broker-defaults", "log.retention.ms").code == 0
        assert on_broker("config", "unset", "--broker", broker, "log.retention.ms").code == 0
    assert "log.retention.ms" not in on_broker("config", "list").out


def broker_id(on_broker: Command, topic: str) -> int:
    [document] = json.loads(on_broker("topic", "describe", topic, "--json").out)
    leader = document["partitions"][0]["leader"]
    assert isinstance(leader, int)
    return leader


@pytest.mark.clients
def test_what_does_not_exist(on_broker: Command, topic: str) -> None:
    setting = on_broker("config", "describe", "--topic", topic, "retention.m")
    assert (setting.code, "did you mean 'retention.ms'" in setting.err) == (4, True)
    broker = on_broker("config", "list", "--broker", "4711")
    assert (broker.code, "there is no broker 4711" in broker.err) == (4, True)
    assert on_broker("config", "list", "--topic", f"{topic}x").code == 4
    assert on_broker("config", "set", "--topic", f"{topic}x", "retention.ms=1").code == 4


@pytest.mark.clients
@pytest.mark.parametrize("pair", ["retention.ms=soon", "no.such.setting=1", "cleanup.policy=shred"])
def test_what_the_broker_refuses(on_broker: Command, topic: str, pair: str) -> None:
    outcome = on_broker("config", "set", "--topic", topic, pair)
    assert outcome.code == 1
    assert pair.split("=")[0] in outcome.err


@pytest.mark.clients
def test_read_only_settings(on_broker: Command, topic: str) -> None:
    outcome = on_broker("config", "set", "--broker", str(broker_id(on_broker, topic)), "node.id=5")
    assert (outcome.code, "node.id" in outcome.err) == (1, True)


def test_reference_of_a_setting(command: Command) -> None:
    lines = command("config", "reference", "retention.ms").lines
    assert lines[0] == "retention.ms (setting of a topic)"
    assert any("default 604800000 ms" in line for line in lines)


def test_reference_of_all(command: Command) -> None:
    table = command("config", "reference").lines
    rows = json.loads(command("config", "reference", "--json").out)
    assert len(table) == len(rows) + 1 > 50
    assert all(row["doc"] for row in rows)


def test_reference_of_an_unknown_setting(command: Command) -> None:
    outcome = command("config", "reference", "retention.sm")
    assert (outcome.code, "did you mean 'retention.ms'" in outcome.err) == (4, True)
