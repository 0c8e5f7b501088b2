"""ConfigCommand (kafka-configs.sh): the settings of topics, of a broker and of all brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.kafka

Tool = Callable[..., Any]


@pytest.fixture
def configs(tool: Tool) -> Tool:
    """Runs ConfigCommand for a type of things: `configs("topics", "--describe")`."""
    return lambda entity_type, *arguments: tool("ConfigCommand", "--entity-type", entity_type, *arguments)


def settings(answer: Any) -> dict[str, tuple[str, str]]:
    """Value and synonyms of each setting that was described."""
    assert answer.code == 0, answer
    found = {}
    for line in answer.lines:
        if line.startswith("  "):
            name, _, rest = line.strip().partition("=")
            value, _, synonyms = rest.partition(" sensitive=false synonyms=")
            found[name] = (value, synonyms.strip("{}"))
    return found


def test_settings_of_a_topic(configs: Tool, topic: str) -> None:
    def describe(*more: str) -> dict[str, tuple[str, str]]:
        return settings(configs("topics", "--entity-name", topic, "--describe", *more))

    def alter(*changes: str) -> None:
        altered = configs("topics", "--entity-name", topic, "--alter", *changes)
        assert (altered.code, altered.out) == (0, f"Completed updating config for topic {topic}.\n"), altered

    assert describe() == {}
    everything = describe("--all")
    assert len(everything) > 30
    assert everything["max.message.bytes"] == ("1048588", "DEFAULT_CONFIG:message.max.bytes=1048588")
    alter("--add-config", "max.message.bytes=200000,cleanup.policy=[compact,delete]")
    size = "DYNAMIC_TOPIC_CONFIG:max.message.bytes=200000, DEFAULT_CONFIG:message.max.bytes=1048588"
    policy = "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete"
    assert describe() == {"max.message.bytes": ("200000", size), "cleanup.policy": ("compact,delete", policy)}
    assert describe("--all")["max.message.bytes"] == ("200000", size)
    alter("--delete-config", "cleanup.policy")
    alter("--delete-config", "segment.ms")
    assert list(describe()) == ["max.message.bytes"]
    assert f"Dynamic configs for topic {topic} are:" in configs("topics", "--describe").lines


@pytest.mark.parametrize("change", ["retention.ms=-5", "retention.ms=abc", "no.such.setting=5", "cleanup.policy=burn"])
def test_wrong_settings_of_a_topic(configs: Tool, topic: str, change: str) -> None:
    refused = configs("topics", "--entity-name", topic, "--alter", "--add-config", f"flush.ms=7,{change}")
    assert refused.code == 1 and "InvalidConfigurationException" in refused.err
    assert settings(configs("topics", "--entity-name", topic, "--describe")) == {}


def test_settings_of_an_unknown_topic(configs: Tool) -> None:
    described = configs("topics", "--entity-name", "tools-unknown", "--describe")
    assert described.out == "The topic 'tools-unknown' doesn't exist and doesn't have dynamic config.\n"
    altered = configs("topics", "--entity-name", "tools-unknown", "--alter", "--add-config", "flush.ms=7")
    assert altered.code == 1 and "UnknownTopicOrPartitionException" in altered.err


def test_settings_of_brokers(configs: Tool) -> None:
    """The broker's own value is stronger than that of all brokers; each can be described, changed and deleted."""
    one, everyone = ["--entity-name", "0"], ["--entity-default"]

    def describe(which: list[str], *more: str) -> dict[str, tuple[str, str]]:
        return settings(configs("brokers", *which, "--describe", *more))

    def alter(which: list[str], *changes: str) -> None:
        altered = configs("brokers", *which, "--alter", *changes)
        assert altered.code == 0, altered

    default = "DEFAULT_CONFIG:log.retention.bytes=-1"
    assert describe(one) == {}
    assert describe(one, "--all")["log.retention.bytes"] == ("-1", default)
    alter(one, "--add-config", "log.retention.bytes=5000000")
    alter(everyone, "--add-config", "log.retention.bytes=6000000")
    for_all = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.bytes=6000000"
    for_one = f"DYNAMIC_BROKER_CONFIG:log.retention.bytes=5000000, {for_all}, {default}"
    assert describe(one) == {"log.retention.bytes": ("5000000", for_one)}
    assert describe(everyone)["log.retention.bytes"][0] == "6000000"
    alter(one, "--delete-config", "log.retention.bytes")
    assert describe(one, "--all")["log.retention.bytes"] == ("6000000", f"{for_all}, {default}")
    alter(everyone, "--delete-config", "log.retention.bytes")
    assert describe(one, "--all")["log.retention.bytes"] == ("-1", default)
    both = configs("brokers", "--describe")
    assert both.lines == ["Dynamic configs for broker 0 are:", "Default configs for brokers in the cluster are:"]


@pytest.mark.parametrize("change", ["node.id=5", "log.retention.bytes=abc", "log.segment.bytes=1"])
def test_wrong_settings_of_a_broker(configs: Tool, change: str) -> None:
    refused = configs("brokers", "--entity-name", "0", "--alter", "--add-config", change)
    assert refused.code == 1 and "InvalidRequestException" in refused.err
    assert settings(configs("brokers", "--entity-name", "0", "--describe")) == {}


def test_a_broker_that_is_not_there(configs: Tool) -> None:
    described = configs("brokers", "--entity-name", "9", "--describe")
    assert described.out == "The broker '9' doesn't exist and doesn't have dynamic config.\n"


def test_client_metrics(configs: Tool) -> None:
    assert configs("client-metrics", "--describe").code == 0
