"""Delegation tokens in a cluster: made at any broker, known at all, removed when their time is over."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.base.errors import Error
from penstock.broker import delegation_tokens
from penstock.broker.delegation_tokens import DelegationTokens
from penstock.sasl.exchange import Login, LoginFailed
from penstock.sasl.scram import ScramClient
from penstock.sasl.scram_server import ScramServer
from penstock.security.principal import ANONYMOUS
from penstock.testing.sim_client import SimClient
from penstock.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenRequestRenewer,
)
from penstock.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.k41_describe_delegation_token import DescribeDelegationTokenRequest
from tests.broker.test_forwarded_principals import ALICE, GUARDED, ROOT, Stage

RENEWAL_MS, CHECK_MS = 60_000, 600_000
WITH_TOKENS = GUARDED | {
    "delegation.token.secret.key": "secret",
    "delegation.token.expiry.time.ms": str(RENEWAL_MS),
    "delegation.token.expiry.check.interval.ms": str(CHECK_MS),
}
MECHANISM, NONCE = "SCRAM-SHA-256", "n" * 24
OF_BOB = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")


@contextmanager
def staged(settings: dict[str, str]) -> Iterator[Stage]:
    made = Stage(settings)
    with made.simulation:
        yield made


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(WITH_TOKENS) as made:
        yield made


def tokens_of(stage: Stage) -> list[DelegationTokens]:
    """As each broker has them."""
    return [broker.running.broker.tokens for broker in stage.cluster.brokers if broker.running is not None]


def log_in(tokens: DelegationTokens, token_id: str, hmac: bytes) -> Login | None:
    server = ScramServer(MECHANISM, lambda user, is_token: tokens.find(MECHANISM, user), "s" * 24, b"")
    client = ScramClient(MECHANISM, token_id, b64encode(hmac).decode(), NONCE, is_token=True)
    message: bytes | None = client.first()
    try:
        while not client.is_done:
            message = client.answer(server.answer(message or b""))
    except LoginFailed:
        return None
    return server.login


def test_made_at_one_broker_and_used_at_every_other(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        alice = await stage.connect(stage.other, ALICE)
        assert (await alice.call(OF_BOB, 3)).error_code == Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        token = await (await stage.connect(stage.other, ROOT)).call(OF_BOB, 3)
        assert token.error_code == Error.NONE
        for each in tokens_of(stage):  # the answer came when all knew it
            expected = Login("bob", until_ms=token.expiry_timestamp_ms, token_id=token.token_id)
            assert log_in(each, token.token_id, token.hmac) == expected
            assert log_in(each, token.token_id, b"another") is None
            assert log_in(each, "another", token.hmac) is None
            assert each.holds(token.token_id)
        own = await alice.call(CreateDelegationTokenRequest(), 3)
        expired = await alice.call(ExpireDelegationTokenRequest(hmac=own.hmac, expiry_time_period_ms=-1), 2)
        assert expired.error_code == Error.NONE
        for each in tokens_of(stage):
            assert log_in(each, own.token_id, own.hmac) is None
            assert not each.holds(own.token_id) and each.holds(token.token_id)

    stage.run(play)


def test_a_stranger_is_refused_where_he_asks(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        for broker in stage.cluster.brokers:
            stranger = await stage.connect(broker, ANONYMOUS)
            answer = await stranger.call(CreateDelegationTokenRequest(), 3)
            assert answer.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    stage.run(play)


def test_expired_tokens_are_no_more_and_are_removed_later(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        alice = await stage.connect(stage.other, ALICE)
        token = await alice.call(CreateDelegationTokenRequest(), 3)
        await asyncio.sleep(RENEWAL_MS / 1000 + 1)
        for each in tokens_of(stage):
            assert not each.holds(token.token_id)
        refused = await alice.call(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1), 2)
        assert refused.error_code == Error.DELEGATION_TOKEN_EXPIRED
        while any(each.all() for each in tokens_of(stage)):  # the simulation has a limit
            await asyncio.sleep(CHECK_MS / 1000)

    stage.run(play)


def test_nobody_fills_the_tree_with_tokens(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "TOKENS_PER_REQUESTER_MAX", 2)

    async def errors(client: SimClient, request: CreateDelegationTokenRequest, count: int) -> list[int]:
        return [(await client.call(request, 3)).error_code for _ in range(count)]

    async def play(stage: Stage) -> None:
        alice, root = await stage.connect(stage.other, ALICE), await stage.connect(stage.other, ROOT)
        nothing = CreateDelegationTokenRequest()
        assert await errors(alice, nothing, 3) == [Error.NONE, Error.NONE, Error.POLICY_VIOLATION]
        assert await errors(root, nothing, 1) == [Error.NONE]
        crowd = CreateDelegationTokenRequest(
            renewers=[CreateDelegationTokenRequestRenewer(principal_type="User", principal_name="x" * 2000)]
        )
        assert await errors(root, crowd, 1) == [Error.POLICY_VIOLATION]
        group = CreateDelegationTokenRequest(owner_principal_type="Group", owner_principal_name="root")
        assert await errors(root, group, 1) == [Error.INVALID_PRINCIPAL_TYPE]

    stage.run(play)


def test_without_a_secret_there_are_no_tokens() -> None:
    async def play(stage: Stage) -> None:
        alice = await stage.connect(stage.other, ALICE)
        for request in (
            CreateDelegationTokenRequest(),
            RenewDelegationTokenRequest(hmac=b"x"),
            ExpireDelegationTokenRequest(hmac=b"x"),
            DescribeDelegationTokenRequest(owners=None),
        ):
            assert (await alice.call(request)).error_code == Error.DELEGATION_TOKEN_AUTH_DISABLED

    with staged(GUARDED) as stage:
        stage.run(play)
