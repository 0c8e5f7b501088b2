"""`penstock token` against a running broker, and that what it makes logs in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.failure import ExitCode
from penstock.columnar import read
from penstock.columnar.errors import NotAllowed
from penstock.testing.broker_process import BrokerProcess, free_port

pytestmark = pytest.mark.clients

Command = Callable[..., Any]
PASSWORD = "a password"
AUDITED_WITHIN_S = 10
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "the brokers' secret",
}


class Site:
    """A broker on which everything is denied but to whoever uses the listener without a login."""

    def __init__(self, command: Command, folder: Path, plain_port: int, login_port: int) -> None:
        self._command = command
        self._folder = folder
        self._plain, self.login = f"localhost:{plain_port}", f"localhost:{login_port}"

    def openly(self, *arguments: str, password: str = "") -> Any:
        stdin = f"{password}\n".encode() if password else b""
        return self._command(*arguments, "--bootstrap", self._plain, stdin=stdin)

    def token(self, user: str, *arguments: str) -> Any:
        settings = self._folder / f"{user}.properties"
        lines = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }
        settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return self._command("token", *arguments, "--bootstrap", self.login, "--client-config", str(settings))

    def records_read_with(self, token_id: str, hmac: str) -> int:
        """By the bulk client, which logs in as Java clients do."""
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM} required username="{token_id}" password="{hmac}" tokenauth="true";',
        }
        return int(read(self.login, "orders", settings=settings).read_all().num_rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "data"


@pytest.fixture(scope="module")
def ports(data: Path) -> Iterator[tuple[int, int]]:
    plain_port, login_port = free_port(), free_port()
    listeners = f"PLAINTEXT://localhost:{plain_port},SASL_PLAINTEXT://localhost:{login_port}"
    settings = SETTINGS | {"listeners": listeners}
    with BrokerProcess(data, settings=settings):
        yield plain_port, login_port


@pytest.fixture
def site(command: Command, ports: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.delenv("PENSTOCK_USER_PASSWORD", raising=False)
    site = Site(command, tmp_path, *ports)
    for user in ("alice", "bob"):
        assert site.openly("user", "add", user, password=PASSWORD).code in (0, ExitCode.EXISTS)
    return site


def test_a_token_from_its_making_to_its_end(site: Site, data: Path) -> None:
    assert site.openly("topic", "create", "orders").code == 0
    assert site.openly("produce", "orders", password="one").code == 0
    allowed = site.openly("acl", "add", "--allow", "User:alice", "--read", "--topic", "orders")
    assert allowed.code == 0, allowed
    made = site.token("alice", "create", "--renewer", "User:bob", "--lifetime", "2d", "--json")
    assert made.code == 0, made
    token = json.loads(made.out)
    assert token["owner"] == "User:alice" and token["renewers"] == ["User:bob"]
    assert site.records_read_with(token["id"], token["hmac"]) == 1
    with pytest.raises(NotAllowed):
        site.records_read_with(token["id"], "wrong")

    (listed,) = json.loads(site.token("bob", "list", "--json").out)
    assert listed["id"] == token["id"] and listed["expires"] == token["expires"]
    shown = site.token("bob", "list")
    assert token["id"] in shown.out and token["hmac"] not in shown.out + json.dumps(listed)
    renewed = site.token("bob", "renew", token["id"], "--period", "1h")
    assert renewed.code == 0 and token["id"] in renewed.out, renewed
    (listed,) = json.loads(site.token("alice", "list", "--owner", "User:alice", "--json").out)
    assert listed["expires"] < token["expires"] and listed["ends"] == token["ends"]
    later = site.token("alice", "expire", token["id"], "--after", "10m", "--yes")
    assert later.code == 0 and "expires at" in later.out, later
    assert site.records_read_with(token["id"], token["hmac"]) == 1
    ended = site.token("alice", "expire", token["id"], "--yes")
    assert ended.code == 0 and ended.out == f"token '{token['id']}' is gone\n", ended
    with pytest.raises(NotAllowed):
        site.records_read_with(token["id"], token["hmac"])
    assert site.token("alice", "renew", token["id"]).code == ExitCode.NOT_FOUND
    check_what_is_written_down(data, token)


def check_what_is_written_down(data: Path, token: dict[str, Any]) -> None:
    """Who did what with the token, and nowhere its secret."""
    (audit,) = data.rglob("audit.jsonl")
    deadline = time.monotonic() + AUDITED_WITHIN_S
    while "token_expired" not in audit.read_text() and time.monotonic() < deadline:
        pass
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    events = [line["event"] for line in lines if line.get("token_id") == token["id"]]
    assert {"token_created", "token_renewed", "token_expired", "login"} <= set(events)
    hmac = token["hmac"].encode()
    for path in data.parent.rglob("*"):
        assert path.is_dir() or hmac not in path.read_bytes(), path


def test_for_somebody_else(site: Site) -> None:
    refused = site.token("bob", "create", "--owner", "User:alice")
    assert refused.code == ExitCode.REFUSED and "--operation create_tokens --user" in refused.err, refused
    rule = ("--allow", "User:bob", "--operation", "create_tokens", "--user", "User:alice")
    assert site.openly("acl", "add", *rule).code == 0
    made = site.token("bob", "create", "--owner", "User:alice")
    assert made.code == 0 and "tokenauth" in made.err, made
    (token,) = json.loads(site.token("alice", "list", "--json").out)
    assert token["owner"] == "User:alice" and token["requester"] == "User:bob"
    assert site.token("bob", "renew", token["id"]).code == ExitCode.REFUSED
    assert site.token("alice", "expire", token["id"], "--yes").code == 0


def test_what_cannot_be(site: Site) -> None:
    stranger = site.openly("token", "create")
    assert stranger.code == ExitCode.REFUSED and "--client-config" in stranger.err, stranger
    assert "written as User:alice" in site.token("alice", "create", "--renewer", "bob").err
    assert "--lifetime wants a time" in site.token("alice", "create", "--lifetime", "soon").err
    assert site.token("alice", "expire", "unknown", "--yes").code == ExitCode.NOT_FOUND
