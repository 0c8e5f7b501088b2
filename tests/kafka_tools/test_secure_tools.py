"""Kafka's own tools over TLS, with logins: topics, records, groups, users, tokens; and what the wrong ones are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.certificates import Authority
from penstock.testing.broker_process import BrokerProcess, free_port

pytestmark = pytest.mark.kafka

PASSWORD = "tool-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
QUICK = {"group.initial.rebalance.delay.ms": "0"}


class SecureSite:
    """A broker that asks for TLS and a login, and Kafka's tools with what they need for it."""

    def __init__(self, runner: Any, folder: Path, authority: Authority, port: int, plain_port: int) -> None:
        self._runner = runner
        self._folder = folder
        self._authority = authority
        self._secure, self._plain = f"localhost:{port}", f"localhost:{plain_port}"

    def openly(self, tool: str, *arguments: str) -> Any:
        return self._runner.run(tool, *arguments, "--bootstrap-server", self._plain)

    def __call__(self, tool: str, mechanism: str, *arguments: str, password: str = PASSWORD, stdin: str = "") -> Any:
        config = self._config(mechanism, password)
        return self._runner.run(
            tool, *arguments, "--bootstrap-server", self._secure, "--command-config", str(config), stdin=stdin
        )

    def with_token(self, tool: str, token_id: str, hmac: str, *arguments: str, stdin: str = "") -> Any:
        """The tool logs in with a delegation token."""
        config = self._config("SCRAM-SHA-512", hmac, f'username="{token_id}" password="{hmac}" tokenauth="true"')
        return self._runner.run(
            tool, *arguments, "--bootstrap-server", self._secure, "--command-config", str(config), stdin=stdin
        )

    def _config(self, mechanism: str, password: str, options: str | None = None) -> Path:
        options = options or f'username="alice" password="{password}"'
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        lines = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.certificate_path),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required {options};",
            "default.api.timeout.ms": "15000",
            "request.timeout.ms": "10000",
        }
        path = self._folder / f"{mechanism}-{len(password)}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path


@pytest.fixture(scope="module")
def site(tool_runner: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureSite]:
    folder = tmp_path_factory.mktemp("secure-tools")
    authority = Authority(folder / "authority")
    port, plain_port = free_port(), free_port()
    settings = QUICK | {
        "listeners": f"SASL_SSL://localhost:{port},PLAINTEXT://localhost:{plain_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(authority.sign("server", ["localhost"])),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "delegation.token.secret.key": "the brokers' secret",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        f'required user_alice="{PASSWORD}";',
    }
    with BrokerProcess(folder / "data", settings=settings):
        site = SecureSite(tool_runner, folder, authority, port, plain_port)
        credentials = ",".join(f"{name}=[iterations=4096,password={PASSWORD}]" for name in MECHANISMS[1:])
        user = ("--entity-type", "users", "--entity-name", "alice")
        added = site.openly("ConfigCommand", *user, "--alter", "--add-config", credentials)
        assert added.code == 0, added
        yield site


Secure = Callable[..., Any]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_topic_is_made_written_and_read(site: Secure, mechanism: str) -> None:
    topic = f"tools-{mechanism.lower()}"
    made = site("TopicCommand", mechanism, "--create", "--topic", topic, "--partitions", "2")
    assert made.code == 0, made
    sent = site("ConsoleProducer", mechanism, "--topic", topic, stdin="one\ntwo\n")
    assert sent.code == 0, sent
    how = ("--from-beginning", "--group", topic, "--max-messages", "2", "--timeout-ms", "20000")
    read = site("ConsoleConsumer", mechanism, "--topic", topic, *how)
    assert read.code == 0 and sorted(read.lines) == ["one", "two"], read
    groups = site("ConsumerGroupCommand", mechanism, "--describe", "--group", topic)
    assert groups.code == 0 and topic in groups.out, groups


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_at_once(site: Secure, mechanism: str) -> None:
    refused = site("TopicCommand", mechanism, "--list", password="wrong")
    assert refused.code != 0, refused
    assert "the login failed" in refused.out, refused


def test_users_are_described(site: Secure) -> None:
    told = site("ConfigCommand", "SCRAM-SHA-512", "--entity-type", "users", "--entity-name", "alice", "--describe")
    assert told.code == 0 and "SCRAM-SHA-256=iterations=4096" in told.out, told
    assert PASSWORD not in told.out


def test_a_delegation_token_from_its_making_to_its_end(site: Any) -> None:
    def tokens(*arguments: str) -> Any:
        return site("DelegationTokenCommand", "SCRAM-SHA-256", *arguments)

    made = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert made.code == 0, made
    token_id, hmac, owner, requester = made.lines[-1].split()[:4]
    assert (owner, requester) == ("User:alice", "User:alice") and "[User:bob]" in made.lines[-1], made
    described = tokens("--describe", "--owner-principal", "User:alice")
    assert described.code == 0 and token_id in described.out, described
    renewed = tokens("--renew", "--renew-time-period", "3600000", "--hmac", hmac)
    assert renewed.code == 0 and "Completed renew operation" in renewed.out, renewed

    topic = "tools-token"
    created = site.with_token("TopicCommand", token_id, hmac, "--create", "--topic", topic)
    assert created.code == 0, created
    sent = site.with_token("ConsoleProducer", token_id, hmac, "--topic", topic, stdin="one\n")
    assert sent.code == 0, sent
    how = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "20000")
    read = site.with_token("ConsoleConsumer", token_id, hmac, "--topic", topic, *how)
    assert read.code == 0 and read.lines == ["one"], read
    another = site.with_token("DelegationTokenCommand", token_id, hmac, "--create", "--max-life-time-period", "-1")
    assert another.code != 0 and "DelegationTokenDisabled" not in another.err + another.out, another

    expired = tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert expired.code == 0 and "Completed expire operation" in expired.out, expired
    refused = site.with_token("TopicCommand", token_id, hmac, "--list")
    assert refused.code != 0 and "the login failed" in refused.out, refused
