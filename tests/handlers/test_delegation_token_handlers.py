"""Delegation tokens, request by request and in every version, and what logs in with one: the same as Apache Kafka.

Everything is denied but to `admin`, and to whoever uses the listener without a login.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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


def add_users(brokers: Brokers) -> None:
    client = Client(brokers)
    salted = salted_password("sha512", PASSWORD, SALT, 4096)
    for name in USERS:
        new = {"name": name, "mechanism": 2, "iterations": 4096, "salt": SALT, "salted_password": salted}
        answer = client.ask("AlterUserScramCredentials", 0, upsertions=[new])
        assert answer.results[0].error_code == Error.NONE
    client.close()
    assert not client.differences


Addresses = tuple[tuple[str, int], tuple[str, int]]
"""Of the listener for everybody, and of the one with a login."""


@contextmanager
def penstock(folder: Path, settings: dict[str, str]) -> Iterator[Addresses]:
    plain, sasl = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
    listeners = f"PLAINTEXT://127.0.0.1:{plain[1]},SASL_PLAINTEXT://127.0.0.1:{sasl[1]}"
    settings = settings | {"listeners": listeners, "inter.broker.listener.name": "PLAINTEXT"}
    with BrokerProcess(folder, settings=settings):
        yield plain, sasl


@contextmanager
def kafka(libs: Path, folder: Path, settings: dict[str, str]) -> Iterator[Addresses]:
    sasl = ("127.0.0.1", free_port())
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    settings = settings | KAFKA_SETTINGS | {"listener.security.protocol.map": protocols}
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        settings[f"listener.name.sasl_plaintext.{mechanism}.sasl.jaas.config"] = f"{SCRAM} required;"
    listener = f"SASL_PLAINTEXT://127.0.0.1:{sasl[1]}"
    with ApacheKafka(libs, folder, settings=settings, more_listeners=[listener]) as running:
        yield (running.host, running.port), sasl


def brokers_at(ours: Addresses, theirs: Addresses | None = None) -> Brokers:
    brokers = Brokers(ours[0], None if theirs is None else theirs[0])
    brokers.shared |= {"penstock": ours[1], "kafka": theirs and theirs[1]}
    add_users(brokers)
    return brokers


@pytest.fixture(scope="module")
def penstock_with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with penstock(tmp_path_factory.mktemp("penstock") / "data", GUARDED) as addresses:
        yield addresses


@pytest.fixture(scope="module")
def alone(penstock_with_tokens: Addresses) -> Brokers:
    return brokers_at(penstock_with_tokens)


@pytest.fixture(scope="module")
def beside_kafka(
    penstock_with_tokens: Addresses, tmp_path_factory: pytest.TempPathFactory, kafka_libs: Path
) -> Iterator[Brokers]:
    with kafka(kafka_libs, tmp_path_factory.mktemp("kafka"), GUARDED) as addresses:
        yield brokers_at(penstock_with_tokens, addresses)


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


def change(
    client: Client,
    what: str,
    hmac: bytes,
    period_ms: int,
    error: Error = Error.NONE,
    *,
    version: int = 2,
    is_patient: bool = False,
) -> Any:
    """Kafka's controller may take a moment until it knows what it decided itself."""
    return client.ask(
        f"{what}DelegationToken",
        version,
        until=lambda answer: answer.error_code == error,
        is_patient=is_patient,
        hmac=hmac,
        **{"renew_period_ms" if what == "Renew" else "expiry_time_period_ms": period_ms},
    )


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
    change(alice, "Expire", token.hmac, -1)


def test_a_token_for_somebody_else(caller: Call) -> None:
    alice, admin = caller("alice"), caller("admin")
    of_bob = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    assert create(alice, **of_bob).error_code == Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    own = create(alice, **of_bob | {"owner_principal_name": ""})
    assert own.principal_name == "alice"
    change(alice, "Expire", own.hmac, -1)
    group = {"principal_type": "Group", "principal_name": "bob"}
    assert create(alice, renewers=[user("bob"), group]).error_code == Error.INVALID_PRINCIPAL_TYPE
    token = create(admin, **of_bob)
    assert token.error_code == Error.NONE and token.token_requester_principal_name == "admin"
    ids_seen(caller("bob"), ["bob"], {token.token_id})
    change(admin, "Renew", token.hmac, -1, Error.DELEGATION_TOKEN_OWNER_MISMATCH)
    change(admin, "Expire", token.hmac, -1, Error.DELEGATION_TOKEN_OWNER_MISMATCH)
    change(caller("bob"), "Expire", token.hmac, -1)
    ids_seen(caller("bob"), ["bob"], set())


@pytest.mark.parametrize("version", [1, 2])
def test_renewing_and_expiring(caller: Call, version: int) -> None:
    bob, carol = caller("bob"), caller("carol")
    token = create(bob, renewers=[user("carol")])
    assert token.max_timestamp_ms - token.issue_timestamp_ms == MAX_MS
    renew, expire = partial(change, what="Renew", version=version), partial(change, what="Expire", version=version)
    hmac, over = token.hmac, Error.DELEGATION_TOKEN_EXPIRED
    for attempt in (renew, expire):
        attempt(bob, hmac=b"unknown", period_ms=1, error=Error.DELEGATION_TOKEN_NOT_FOUND)
        attempt(caller("alice"), hmac=hmac, period_ms=1, error=Error.DELEGATION_TOKEN_OWNER_MISMATCH)
    longest = renew(carol, hmac=hmac, period_ms=99 * HOUR_MS)
    assert RENEWAL_MS <= longest.expiry_timestamp_ms - token.issue_timestamp_ms < RENEWAL_MS + HOUR_MS
    usual = renew(bob, hmac=hmac, period_ms=-1)
    assert usual.expiry_timestamp_ms >= longest.expiry_timestamp_ms
    sooner = renew(bob, hmac=hmac, period_ms=60_000)
    assert sooner.expiry_timestamp_ms < token.expiry_timestamp_ms
    at_last = expire(carol, hmac=hmac, period_ms=(1 << 63) - 1)
    assert at_last.expiry_timestamp_ms == token.max_timestamp_ms
    expire(carol, hmac=hmac, period_ms=0)
    expire(carol, hmac=hmac, period_ms=0, error=over, is_patient=True)  # it ends with the millisecond
    renew(bob, hmac=hmac, period_ms=-1, error=over)
    expire(bob, hmac=hmac, period_ms=-1)
    expire(bob, hmac=hmac, period_ms=-1, error=Error.DELEGATION_TOKEN_NOT_FOUND)


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
        change(owner, "Expire", token.hmac, -1)
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
    change(caller("alice"), "Expire", token.hmac, -1)


@pytest.mark.kafka
@pytest.mark.slow
def test_without_a_secret_there_are_no_tokens(tmp_path: Path, kafka_libs: Path) -> None:
    settings = {name: value for name, value in GUARDED.items() if name != "delegation.token.secret.key"}
    with penstock(tmp_path / "data", settings) as ours, kafka(kafka_libs, tmp_path / "kafka", settings) as theirs:
        brokers = brokers_at(ours, theirs)
        alice = Caller(brokers, "alice")
        for name in ALL:
            for version in alice.versions(name):
                assert alice.ask(name, version).error_code == Error.DELEGATION_TOKEN_AUTH_DISABLED
        of_bob = {"owner_principal_type": "User", "owner_principal_name": "bob"}
        assert create(alice, **of_bob).error_code == Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        alice.close()
    assert not alice.differences, alice.differences
