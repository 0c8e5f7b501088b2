"""`penstock acl`, and the same rules with an AdminClient, against a broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as confluent_admin

from penstock.testing.broker_process import BrokerProcess
from tests.cli.conftest import Command

pytestmark = pytest.mark.clients

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
kafka_admin: Any = confluent_admin  # which says little of its types
ANYTHING: Any = None
EVERYTHING = kafka_admin.AclBindingFilter(
    kafka_admin.ResourceType.ANY,
    ANYTHING,
    kafka_admin.ResourcePatternType.ANY,
    ANYTHING,
    ANYTHING,
    kafka_admin.AclOperation.ANY,
    kafka_admin.AclPermissionType.ANY,
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    with BrokerProcess(folder / "data", settings=AUTHORIZER) as broker:
        yield broker.bootstrap


def test_rules_are_added_listed_and_removed(command: Command, guarded: str) -> None:
    rule = ("--allow", "User:alice", "--read", "--topic", "orders", "--topic", "log-*", "--group", "g")
    added = command("acl", "add", *rule, "-b", guarded)
    assert added.code == 0 and len(added.lines) == 3
    listed = json.loads(command("acl", "list", "--topic", "log-1", "--json", "-b", guarded).out)
    assert listed == [
        {
            "rule": "allow",
            "principal": "User:alice",
            "host": "*",
            "operation": "read",
            "resource": "topic",
            "pattern": "prefixed",
            "name": "log-",
        }
    ]
    assert "User:alice" in command("acl", "list", "-b", guarded).out
    removed = command("acl", "remove", *rule, "--yes", "-b", guarded)
    assert removed.code == 0 and all(line.startswith("removed") for line in removed.lines)
    assert json.loads(command("acl", "list", "--json", "-b", guarded).out) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--read", "--topic", "orders"), "--allow"),
        (("--allow", "User:a", "--read"), "--topic"),
        (("--allow", "User:a", "--topic", "orders"), "--read"),
        (("--allow", "alice", "--read", "--topic", "orders"), "User:alice"),
        (("--allow", "User:a", "--operation", "fly", "--topic", "orders"), "fly"),
        (("--allow", "User:a", "--read", "--cluster"), "topics and groups"),
    ],
)
def test_what_is_missing_is_said(command: Command, arguments: tuple[str, ...], said: str) -> None:
    outcome = command("acl", "add", *arguments, "-b", "127.0.0.1:1")
    assert outcome.code == 2 and said in outcome.err


def test_an_admin_client_manages_the_same_rules(guarded: str) -> None:
    admin = kafka_admin.AdminClient({"bootstrap.servers": guarded})
    rule = kafka_admin.AclBinding(
        kafka_admin.ResourceType.TRANSACTIONAL_ID,
        "t/1 ä",
        kafka_admin.ResourcePatternType.LITERAL,
        "User:CN=bob,O=x",
        "10.0.0.1",
        kafka_admin.AclOperation.WRITE,
        kafka_admin.AclPermissionType.DENY,
    )
    for each in admin.create_acls([rule]).values():
        each.result(timeout=20)
    assert admin.describe_acls(EVERYTHING).result(timeout=20) == [rule]
    (deleted,) = admin.delete_acls([EVERYTHING]).values()
    assert deleted.result(timeout=20) == [rule]
    assert admin.describe_acls(EVERYTHING).result(timeout=20) == []
