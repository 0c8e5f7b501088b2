"""`penstock quota` against a running broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli.failure import ExitCode

Command = Callable[..., Any]


@pytest.mark.clients
def test_set_list_remove(on_broker: Command) -> None:
    who = ("--user", "alice", "--client-id", "app")
    outcome = on_broker("quota", "set", *who, "--produce", "10MB/s", "--request-percent", "12.5")
    assert outcome.out == "client-id app, user alice: producer_byte_rate 10.0 MiB/s, request_percentage 12.5 %\n"
    assert "client-id app, user alice\tproducer_byte_rate\t10.0 MiB/s" in on_broker("quota", "list").lines
    told = json.loads(on_broker("quota", "list", "--json").out)
    quotas = {"producer_byte_rate": 10485760.0, "request_percentage": 12.5}
    assert {"entity": {"user": "alice", "client-id": "app"}, "quotas": quotas} in told
    assert on_broker("quota", "remove", *who).out == "client-id app, user alice: no quota any more\n"
    assert on_broker("quota", "remove", *who).code == ExitCode.NOT_FOUND
    assert on_broker("quota", "set", "--default-ip", "--connections", "10000").out == (
        "every ip: connection_creation_rate 10000/s\n"
    )
    assert on_broker("quota", "remove", "--default-ip").code == 0


@pytest.mark.clients
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--produce", "1M"], "a quota for whom?"),
        (["--user", "alice"], "a limit on what?"),
        (["--user", "alice", "--default-user", "--produce", "1M"], "exclude each other"),
        (["--user", "alice", "--produce", "fast"], "--produce wants a number of bytes"),
        (["--user", "alice", "--connections", "5"], "connection_creation_rate is no quota of this kind"),
        (["--ip", "nowhere", "--connections", "5"], "nowhere is no IP address"),
    ],
)
def test_what_cannot_be_set(on_broker: Command, options: list[str], problem: str) -> None:
    outcome = on_broker("quota", "set", *options)
    assert outcome.code != 0 and problem in outcome.err
