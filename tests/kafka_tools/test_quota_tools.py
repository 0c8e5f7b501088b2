"""ConfigCommand (kafka-configs.sh): quotas of users, client ids, both, and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.kafka

Tool = Callable[..., Any]


def test_quotas(tool: Tool) -> None:
    both = ("--entity-type", "users", "--entity-name", "carol", "--entity-type", "clients", "--entity-name", "app")
    added = tool("ConfigCommand", *both, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50")
    assert added.code == 0, added
    told = tool("ConfigCommand", *both, "--describe")
    assert told.code == 0 and "producer_byte_rate=1024.0" in told.out and "request_percentage=50.0" in told.out, told
    removed = tool("ConfigCommand", *both, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    assert removed.code == 0, removed
    assert "producer_byte_rate" not in tool("ConfigCommand", *both, "--describe").out


def test_quotas_of_addresses(tool: Tool) -> None:
    address = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    assert tool("ConfigCommand", *address, "--alter", "--add-config", "connection_creation_rate=7").code == 0
    assert "connection_creation_rate=7.0" in tool("ConfigCommand", *address, "--describe").out
    assert tool("ConfigCommand", *address, "--alter", "--delete-config", "connection_creation_rate").code == 0
