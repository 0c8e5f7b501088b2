"""Whose requests count: everybody's, but for what only brokers do, of those who may."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.broker_settings import load_broker_settings
from penstock.base.world import Address
from penstock.broker.client_quotas import ClientQuotas
from penstock.broker.rights import Rights
from penstock.security.principal import ANONYMOUS, Principal

PEER = "penstock-peer-1"


class _Clock:
    def monotonic(self) -> float:
        return 100.0


def connection_of(client_id: str) -> Any:
    return SimpleNamespace(allowance=None, principal=ANONYMOUS, client_id=client_id, throttle=lambda _seconds: None)


@pytest.fixture
def quotas() -> ClientQuotas:
    made = ClientQuotas(_Clock(), load_broker_settings({}))  # type: ignore[arg-type]
    made.use({"clients/<default>": {"producer_byte_rate": "10", "controller_mutation_rate": "1"}})
    return made


@pytest.mark.parametrize("client_id", ["app", PEER])
def test_a_client_id_exempts_nobody(quotas: ClientQuotas, client_id: str) -> None:
    connection = connection_of(client_id)
    assert quotas.of(connection) is not None
    assert quotas.produced(connection, 1_000_000) > 0
    assert quotas.mutations(ANONYMOUS, client_id) is not None


@pytest.mark.parametrize(
    ("api_key", "version", "is_among_brokers"),
    [
        *[(20007, 0, True), (20004, 0, True), (56, 3, True), (24, 4, True), (24, 3, False), (27, 1, True)],
        *[(0, 9, False), (1, 17, False), (3, 12, False), (19, 7, False), (20000, 0, False)],
    ],
)
def test_what_only_brokers_do(quotas: ClientQuotas, api_key: int, version: int, is_among_brokers: bool) -> None:
    connection = connection_of(PEER)
    assert quotas.is_among_brokers(connection, api_key, version) is is_among_brokers
    quotas.may_act_as_broker = lambda _connection: False
    assert not quotas.is_among_brokers(connection, api_key, version)


@pytest.mark.parametrize(("user", "may"), [("broker", True), ("alice", False)])
def test_with_an_authorizer_a_right_is_needed(quotas: ClientQuotas, user: str, may: bool) -> None:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker",
    }
    view: Any = SimpleNamespace(configs={}, on_change=lambda _listener: None)
    rights = Rights(view, load_broker_settings(authorizer), audit=SimpleNamespace())  # type: ignore[arg-type]
    quotas.may_act_as_broker = rights.may_act_as_broker
    connection = connection_of(PEER)
    connection.principal, connection.peer = Principal("User", user), Address("10.0.0.1", 5)
    assert quotas.is_among_brokers(connection, 20007, 0) is may
