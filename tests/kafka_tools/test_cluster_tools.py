"""ClusterTool, BrokerApiVersionsCommand, FeatureCommand: what a cluster says about itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

Tool = Callable[..., Any]


def test_cluster_id(tool: Tool) -> None:
    answer = tool("ClusterTool", "cluster-id")
    assert answer.code == 0 and re.fullmatch(r"Cluster ID: [\w-]{22}\n", answer.out)


def test_endpoints(tool: Tool, broker: BrokerProcess) -> None:
    head, line = tool("ClusterTool", "list-endpoints").lines
    assert head.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    assert line.split() == ["0", "127.0.0.1", str(broker.port), "null", "unfenced", "broker"]


def test_api_versions(tool: Tool) -> None:
    """Everything we serve is served at the versions that Kafka's client has."""
    answer = tool("BrokerApiVersionsCommand")
    assert answer.code == 0
    served = dict(re.findall(r"^\t(\w+)\(\d+\): (.+?),?$", answer.out, re.MULTILINE))
    assert served["Produce"] == "0 to 13 [usable: 13]"
    assert served["Fetch"] == "4 to 18 [usable: 18]"
    assert served["ApiVersions"] == "0 to 4 [usable: 4]"
    assert not [name for name in served if not re.match(r"\d+( to \d+)? \[usable: \d+\]|UNSUPPORTED", served[name])]
    assert "UNKNOWN" not in answer.out


def test_features(tool_runner: Any, broker: BrokerProcess) -> None:
    assert tool_runner.run("FeatureCommand", "--bootstrap-server", broker.bootstrap, "describe").code == 0
