"""Producing and consuming by somebody who may not: one sentence and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.cli.failure import ExitCode
from penstock.testing.broker_process import BrokerProcess
from tests.cli.conftest import Command, Outcome

pytestmark = pytest.mark.clients

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
Ask = Callable[..., Outcome]


@pytest.fixture
def ask(tmp_path: Path, command: Command) -> Iterator[Ask]:
    """A command to a broker where everybody may do what no rule forbids, with a topic that has a message."""
    with BrokerProcess(tmp_path / "data", settings=AUTHORIZER) as broker:

        def call(*words: str, stdin: bytes = b"") -> Outcome:
            return command(*words, "--bootstrap", broker.bootstrap, stdin=stdin)

        assert call("topic", "create", "orders").code == ExitCode.OK
        assert call("produce", "orders", stdin=b"one\n").code == ExitCode.OK
        yield call


def deny(ask: Ask, operation: str, *what: str) -> None:
    added = partial(ask, "acl", "add", "--deny", "User:ANONYMOUS", "--operation", operation)(*what)
    assert added.code == ExitCode.OK, added.err


def test_without_a_group_no_right_to_one_is_needed(ask: Ask) -> None:
    deny(ask, "all", "--group", "*")
    assert ask("consume", "orders", "--from", "beginning").out == "one\n"
    refused = ask("consume", "orders", "--group", "g")
    assert (refused.code, refused.out) == (ExitCode.REFUSED, "")
    assert "group 'g': the broker refuses this" in refused.err


def test_a_topic_that_may_not_be_written(ask: Ask) -> None:
    deny(ask, "write", "--topic", "orders")
    refused = ask("produce", "orders", stdin=b"two\n")
    assert refused.code == ExitCode.REFUSED
    assert "topic 'orders': the broker refuses this" in refused.err


def test_nothing_may_be_written_at_all(ask: Ask) -> None:
    """Then the client does not even get a producer id, and gives up."""
    deny(ask, "write", "--topic", "*")
    deny(ask, "idempotent-write", "--cluster")
    refused = ask("produce", "orders", stdin=b"two\n")
    assert refused.code == ExitCode.REFUSED
    assert "topic 'orders': the broker refuses this" in refused.err
