"""Delegation tokens, request by request and in every version, and what logs in with one: the same as Apache Kafka.

Everything is denied but to `admin`, and to whoever uses the listener without a login.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.sasl.scram import ScramClient, salted_password
from penstock.security.delegation_tokens import hmac_of
from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.broker_process import BrokerProcess, free_port
from penstock.testing.raw_client import RawClient
from penstock.wire.api_declaration import Api
from penstock.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from penstock.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from tests.handlers.conftest import API_OF_NAME, KAFKA_SETTINGS, SETTINGS, Brokers, Client, Closed, Link, message_of

SECRET = "the secret of the brokers"
HOUR_MS = 3_600_000
MAX_MS, RENEWAL_MS = 5 * HOUR_MS, 2 * HOUR_MS
GUARDED = SETTINGS | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": SECRET,
    "delegation.token.max.lifetime.ms": str(MAX_MS),
    "delegation.token.expiry.time.ms": str(RENEWAL_MS),
}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = ("admin", "alice", "bob", "carol")
PASSWORD, SALT, NONCE = "a password", b"salt" * 4, "n" * 24
KAFKA_KNOWS_WITHIN_S = 10
ALL = ("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken")
NOT_ALLOWED = Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class LoggedIn(Link):
    """A connection that begins with a login. `retry_s`: how long it may take until somebody is known."""

    def __init__(
        self, address: tuple[str, int], user: str, password: str, *, is_token: bool = False, retry_s: float = 0
    ) -> None:
        super().__init__(address)
        self.lifetime_ms = 0
        self._login = (user, password, is_token)
        self._retry_s = retry_s

    def send(self, api: Api, version: int, body: Any) -> bytes:
        deadline = time.monotonic() + self._retry_s
        while self._client is None:
            client = RawClient(*self._address)
            if self._log_in(client):
                self._client = client
                break
            client.close()
            assert time.monotonic() < deadline, f"{self._login[0]} cannot log in"
        return super().send(api, version, body)

    def is_let_in(self) -> bool:
        with RawClient(*self._address) as client:
            return self._log_in(client)

    def _log_in(self, client: RawClient) -> bool:
        assert client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1).error_code == Error.NONE
        user, password, is_token = self._login
        exchange = ScramClient("SCRAM-SHA-512", user, password, NONCE, is_token=is_token)
        message: bytes | None = exchange.first()
        while not exchange.is_done:
            answer = client.call(SaslAuthenticateRequest(auth_bytes=message or b""), 1)
            if answer.error_code:
                return False
            self.lifetime_ms = answer.session_lifetime_ms
            message = exchange.answer(answer.auth_bytes)
        return True


class Caller(Client):
    """Somebody who has logged in at both brokers, with a password or with a token of each."""

    def __init__(self, brokers: Brokers, user: str, hmac: bytes | None = None) -> None:
        super().__init__(brokers)
        ours = (user, PASSWORD if hmac is None else b64encode(hmac).decode())
        self.link = LoggedIn(brokers.shared["penstock"], *ours, is_token=hmac is not None)
        self._penstock = self.link
        if brokers.kafka is not None:
            theirs = ours
            if hmac is not None:
                translated = brokers.translation.request
                theirs = (translated(user, "token_id"), b64encode(translated(hmac, "hmac")).decode())
            self._kafka = LoggedIn(
                brokers.shared["kafka"], *theirs, is_token=hmac is not None, retry_s=KAFKA_KNOWS_WITHIN_S
            )

    def close(self) -> None:
        for link in (self._penstock, self._kafka):
            if link is not None:
                link.close()


def sasl_settings(listeners: str, **more: str) -> dict[str, str]:
    return GUARDED | {"listeners": listeners, "inter.broker.listener.name": "PLAINTEXT"} | more


def add_users(brokers: Brokers) -> None:
    client = Client(brokers)
    salted = salted_password("sha512", PASSWORD, SALT, 4096)
    for name in USERS:
        new = {"name": name, "mechanism": 2, "iterations": 4096, "salt": SALT, "salted_password": salted}
        answer = client.ask("AlterUserScramCredentials", 0, upsertions=[new])
        assert answer.results[0].error_code == Error.NONE
    client.close()
    assert not client.differences


@pytest.fixture(scope="module")
def penstock_with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    plain, sasl = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    with BrokerProcess(tmp_path_factory.mktemp("penstock") / "data", settings=sasl_settings(listeners)):
        yield ("127.0.0.1", plain), ("127.0.0.1", sasl)


@pytest.fixture(scope="module")
def alone(penstock_with_tokens: tuple[tuple[str, int], tuple[str, int]]) -> Brokers:
    brokers = Brokers(penstock_with_tokens[0])
    brokers.shared["penstock"] = penstock_with_tokens[1]
    add_users(brokers)
    return brokers


@pytest.fixture(scope="module")
def beside_kafka(
    penstock_with_tokens: tuple[tuple[str, int], tuple[str, int]],
    tmp_path_factory: pytest.TempPathFactory,
    kafka_libs: Path,
) -> Iterator[Brokers]:
    port = free_port()
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    settings = GUARDED | KAFKA_SETTINGS | {"listener.security.protocol.map": protocols}
    settings |= {"listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;"}
    settings |= {"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;"}
    with ApacheKafka(
        kafka_libs,
        tmp_path_factory.mktemp("kafka"),
        settings=settings,
        more_listeners=[f"SASL_PLAINTEXT://127.0.0.1:{port}"],
    ) as kafka:
        brokers = Brokers(penstock_with_tokens[0], (kafka.host, kafka.port))
        brokers.shared |= {"penstock": penstock_with_tokens[1], "kafka": (kafka.host, port)}
        add_users(brokers)
        yield brokers


Call = Callable[..., Caller]


@pytest.fixture(params=["penstock", pytest.param("beside-kafka", marks=pytest.mark.kafka)])
def brokers(request: pytest.FixtureRequest) -> Brokers:
    fixture = "alone" if request.param == "penstock" else "beside_kafka"
    found: Brokers = request.getfixturevalue(fixture)
    return found


@pytest.fixture
def caller(brokers: Brokers) -> Iterator[Call]:
    """Logs somebody in; fails if answers differed."""
    made: list[Caller] = []

    def log_in(user: str, hmac: bytes | None = None) -> Caller:
        made.append(Caller(brokers, user, hmac))
        return made[-1]

    yield log_in
    for each in made:
        each.close()
    differences = [line for each in made for line in each.differences]
    assert not differences, "\n".join(["Penstock differs from Kafka:", *differences])


def create(client: Client, version: int = 3, **fields: Any) -> Any:
    fields = {"max_lifetime_ms": -1, "owner_principal_type": None, "owner_principal_name": None} | fields
    return client.ask("CreateDelegationToken", version, **fields)


def user(name: str) -> dict[str, str]:
    return {"principal_type": "User", "principal_name": name}


def change(client: Client, what: str, hmac: bytes, period_ms: int, version: int = 2) -> Any:
    field = "renew_period_ms" if what == "Renew" else "expiry_time_period_ms"
    return client.ask(f"{what}DelegationToken", version, **{"hmac": hmac, field: period_ms})


def ids_seen(client: Client, owners: list[str] | None, expected: set[str], version: int = 3) -> None:
    """Kafka may take a moment until its tokens can be seen."""
    client.ask(
        "DescribeDelegationToken",
        version,
        until=lambda answer: len(answer.tokens) == len(expected),
        owners=None if owners is None else [user(name) for name in owners],
    )
    answer = client.ask(
        "DescribeDelegationToken", version, owners=None if owners is None else [user(name) for name in owners]
    )
    assert {token.token_id for token in answer.tokens} == expected


def test_who_has_not_logged_in_gets_no_tokens(brokers: Brokers) -> None:
    client = Client(brokers)
    for name in ALL:
        for version in client.versions(name):
            assert client.ask(name, version).error_code == NOT_ALLOWED
    client.close()
    assert not client.differences, client.differences


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_of_ones_own(caller: Call, version: int) -> None:
    alice = caller("alice")
    token = create(alice, version, renewers=[user("bob"), user("")], max_lifetime_ms=3 * HOUR_MS)
    assert token.error_code == Error.NONE and (token.principal_type, token.principal_name) == ("User", "alice")
    assert token.hmac == hmac_of(SECRET, token.token_id) and len(token.token_id) == 22
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == RENEWAL_MS
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 3 * HOUR_MS
    ids_seen(alice, None, {token.token_id}, version)
    for owners, expected in ((["bob"], {token.token_id}), (["carol"], set()), ([], set())):
        ids_seen(alice, owners, expected, version)
    ids_seen(caller("bob"), ["alice"], {token.token_id}, version)
    ids_seen(caller("carol"), None, set(), version)
    ids_seen(caller("admin"), ["alice"], {token.token_id}, version)
    assert change(alice, "Expire", token.hmac, -1).error_code == Error.NONE


def test_a_token_for_somebody_else(caller: Call) -> None:
    alice, admin = caller("alice"), caller("admin")
    of_bob = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    assert create(alice, **of_bob).error_code == Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    own = create(alice, **of_bob | {"owner_principal_name": ""})
    assert own.principal_name == "alice" and change(alice, "Expire", own.hmac, -1).error_code == Error.NONE
    group = {"principal_type": "Group", "principal_name": "bob"}
    assert create(alice, renewers=[user("bob"), group]).error_code == Error.INVALID_PRINCIPAL_TYPE
    token = create(admin, **of_bob)
    assert token.error_code == Error.NONE and token.token_requester_principal_name == "admin"
    ids_seen(caller("bob"), ["bob"], {token.token_id})
    assert change(admin, "Renew", token.hmac, -1).error_code == Error.DELEGATION_TOKEN_OWNER_MISMATCH
    assert change(admin, "Expire", token.hmac, -1).error_code == Error.DELEGATION_TOKEN_OWNER_MISMATCH
    assert change(caller("bob"), "Expire", token.hmac, -1).error_code == Error.NONE
    ids_seen(caller("bob"), ["bob"], set())


@pytest.mark.parametrize("version", [1, 2])
def test_renewing_and_expiring(caller: Call, version: int) -> None:
    bob, carol = caller("bob"), caller("carol")
    token = create(bob, renewers=[user("carol")])
    assert token.max_timestamp_ms - token.issue_timestamp_ms == MAX_MS
    for what in ("Renew", "Expire"):
        assert change(bob, what, b"unknown", 1, version).error_code == Error.DELEGATION_TOKEN_NOT_FOUND
        stranger = change(caller("alice"), what, token.hmac, 1, version)
        assert stranger.error_code == Error.DELEGATION_TOKEN_OWNER_MISMATCH
    longest = change(carol, "Renew", token.hmac, 99 * HOUR_MS, version)
    assert RENEWAL_MS <= longest.expiry_timestamp_ms - token.issue_timestamp_ms < RENEWAL_MS + HOUR_MS
    usual = change(bob, "Renew", token.hmac, -1, version)
    assert usual.expiry_timestamp_ms >= longest.expiry_timestamp_ms
    sooner = change(bob, "Renew", token.hmac, 1000, version)
    assert sooner.expiry_timestamp_ms < token.expiry_timestamp_ms
    at_last = change(carol, "Expire", token.hmac, (1 << 63) - 1, version)
    assert at_last.expiry_timestamp_ms == token.max_timestamp_ms
    assert change(carol, "Expire", token.hmac, 0, version).error_code == Error.NONE
    over = (Error.DELEGATION_TOKEN_EXPIRED,)
    while (renewed := change(bob, "Renew", token.hmac, -1, version)).error_code == Error.NONE:
        change(carol, "Expire", token.hmac, 0, version)  # within the very millisecond of its end it is still one
    assert renewed.error_code in over
    assert change(bob, "Expire", token.hmac, 5, version).error_code in over
    assert change(bob, "Expire", token.hmac, -1, version).error_code == Error.NONE
    assert change(bob, "Expire", token.hmac, -1, version).error_code == Error.DELEGATION_TOKEN_NOT_FOUND


def test_logging_in_with_a_token(caller: Call) -> None:
    """Its holder acts as the owner, but makes and sees no tokens, until the token ends."""
    admin, alice = caller("admin"), caller("alice")
    all_rules = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    all_rules |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    for owner, error in ((admin, Error.NONE), (alice, Error.CLUSTER_AUTHORIZATION_FAILED)):
        token = create(owner, max_lifetime_ms=HOUR_MS)
        holder = caller(token.token_id, token.hmac)
        assert holder.ask("DescribeAcls", 3, **all_rules).error_code == error
        assert 0 < holder.link.lifetime_ms <= HOUR_MS
        for name in ALL:
            for version in holder.versions(name):
                assert holder.ask(name, version).error_code == NOT_ALLOWED
        assert change(owner, "Expire", token.hmac, -1).error_code == Error.NONE
        assert not holder.link.is_let_in()
        # ours ends what is open as well, which Kafka leaves to the end that was told at the login
        assert owner is alice or is_cut_off(holder.link)


def is_cut_off(link: LoggedIn) -> bool:
    """Whether the broker comes to close a connection that was logged in."""
    deadline = time.monotonic() + KAFKA_KNOWS_WITHIN_S
    metadata = API_OF_NAME["Metadata"]
    try:
        while time.monotonic() < deadline:
            link.exchange(metadata, 12, message_of(metadata.request, 12, {"topics": []}))
    except Closed:
        return True
    return False


def test_a_token_is_no_password_and_a_password_no_token(caller: Call, brokers: Brokers) -> None:
    token = create(caller("alice"))
    address, hmac = brokers.shared["penstock"], b64encode(token.hmac).decode()
    assert LoggedIn(address, token.token_id, hmac, is_token=True).is_let_in()
    assert not LoggedIn(address, token.token_id, hmac).is_let_in()
    assert not LoggedIn(address, "alice", PASSWORD, is_token=True).is_let_in()
    assert not LoggedIn(address, token.token_id, "wrong", is_token=True).is_let_in()
    assert not LoggedIn(address, "unknown", hmac, is_token=True).is_let_in()
    assert change(caller("alice"), "Expire", token.hmac, -1).error_code == Error.NONE
