"""`penstock user` against a running broker, and that what it sets is what logs in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.failure import ExitCode
from penstock.testing.broker_process import BrokerProcess, free_port

pytestmark = pytest.mark.clients

Command = Callable[..., Any]
FIRST, SECOND = "first 'secret', = ü", "second secret"


class Site:
    """A broker with a listener for everybody and one for those who log in."""

    def __init__(self, command: Command, folder: Path, plain_port: int, login_port: int) -> None:
        self._command = command
        self._folder = folder
        self._plain, self._login = f"localhost:{plain_port}", f"localhost:{login_port}"

    def user(self, *arguments: str, password: str = "") -> Any:
        stdin = f"{password}\n".encode() if password else b""
        return self._command("user", *arguments, "--bootstrap", self._plain, stdin=stdin)

    def logs_in(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
        settings = self._folder / "login.properties"
        lines = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
        settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        outcome = self._command("user", "list", "--bootstrap", self._login, "--client-config", str(settings))
        assert password not in outcome.err
        return bool(outcome.code == 0)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    plain_port, login_port = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://localhost:{plain_port},SASL_PLAINTEXT://localhost:{login_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with BrokerProcess(tmp_path_factory.mktemp("users") / "data", settings=settings):
        yield plain_port, login_port


@pytest.fixture
def site(command: Command, ports: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.delenv("PENSTOCK_USER_PASSWORD", raising=False)
    return Site(command, tmp_path, *ports)


def test_add_password_delete(site: Site) -> None:
    added = site.user("add", "alice", password=FIRST)
    assert added.code == 0, added
    assert added.out == "user 'alice' can log in with SCRAM-SHA-256 and SCRAM-SHA-512\n"
    assert site.logs_in("alice", FIRST) and site.logs_in("alice", FIRST, "SCRAM-SHA-256")
    assert not site.logs_in("alice", SECOND)
    assert site.user("add", "alice", password=SECOND).code == ExitCode.EXISTS
    changed = site.user("password", "alice", password=SECOND)
    assert changed.code == 0 and changed.out == "user 'alice' has a new password\n"
    assert site.logs_in("alice", SECOND) and not site.logs_in("alice", FIRST)
    deleted = site.user("delete", "alice", "--yes")
    assert deleted.code == 0 and deleted.out == "user 'alice' is deleted\n"
    assert not site.logs_in("alice", SECOND)
    assert site.user("delete", "alice", "--yes").code == ExitCode.NOT_FOUND
    assert site.user("password", "alice", password=SECOND).code == ExitCode.NOT_FOUND


def test_one_mechanism_only(site: Site) -> None:
    assert site.user("add", "bob", "--mechanism", "scram-sha-256", "--iterations", "5000", password=FIRST).code == 0
    told = json.loads(site.user("list", "--json").out)
    assert {"user": "bob", "mechanisms": {"SCRAM-SHA-256": 5000}} in told
    assert site.logs_in("bob", FIRST, "SCRAM-SHA-256") and not site.logs_in("bob", FIRST)
    assert site.user("password", "bob", password=SECOND).code == 0
    assert site.logs_in("bob", SECOND, "SCRAM-SHA-256")


def test_a_password_in_a_variable(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_USER_PASSWORD", FIRST)
    assert site.user("add", "carol").code == 0
    monkeypatch.delenv("PENSTOCK_USER_PASSWORD")
    assert site.logs_in("carol", FIRST)


def test_what_cannot_be(site: Site) -> None:
    assert "a password must not be empty" in site.user("add", "dora").err
    assert "--mechanism is" in site.user("add", "dora", "--mechanism", "PLAIN", password=FIRST).err
    assert "dora" not in site.user("list").out
