"""AclCommand (kafka-acls.sh) against a broker with an authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def acls(tool_runner: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    with BrokerProcess(tmp_path_factory.mktemp("guarded") / "data", settings=AUTHORIZER) as broker:
        yield lambda *arguments: tool_runner.run("AclCommand", *arguments, "--bootstrap-server", broker.bootstrap)


def test_rules_are_added_listed_and_removed(acls: Callable[..., Any]) -> None:
    rule = ("--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "g")
    added = acls("--add", *rule)
    assert added.code == 0, added
    listed = acls("--list", "--topic", "orders")
    assert listed.code == 0 and "principal=User:alice" in listed.out and "operation=READ" in listed.out, listed
    prefixed = acls(
        "--add",
        "--deny-principal",
        "User:bob",
        "--operation",
        "All",
        "--topic",
        "ord",
        "--resource-pattern-type",
        "prefixed",
    )
    assert prefixed.code == 0, prefixed
    matching = acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "principal=User:bob" in matching.out and "permissionType=DENY" in matching.out, matching
    removed = acls("--remove", "--force", *rule)
    assert removed.code == 0, removed
    assert "User:alice" not in acls("--list").out
