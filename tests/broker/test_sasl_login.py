"""The end of a login: by its time, and because the token that it was made with is no more."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.real_world import real_world
from penstock.base.world import Address
from penstock.broker.connection import ConnectionBroken
from penstock.broker.sasl_login import LoginRules, SaslLogin
from penstock.sasl.exchange import Login
from penstock.security.principal import ANONYMOUS
from penstock.wire.messages.k03_metadata import API as METADATA

RULES = LoginRules(("SCRAM-SHA-256",), 1000, 1000, again_s=100.0, failure_delay_s=0.0, login_s_max=10.0)


class Connection:
    """As much of one as a login touches."""

    def __init__(self) -> None:
        self.frame_bytes_max = 1 << 20
        self.due_s: float | None = None
        self.principal = ANONYMOUS
        self.peer = Address("10.0.0.1", 1)
        self.listener_name, self.client_id = "SASL_SSL", "x"
        self.dispatch: Any = None
        self.closed: str | None = None

    def dispatch_with(self, dispatch: Any) -> None:
        self.dispatch = dispatch

    def close(self, reason: str) -> None:
        self.closed = reason


class Exchange:
    """One message, and that is all."""

    claimed = "alice"

    def __init__(self, token_id: str | None) -> None:
        self.login: Login | None = None
        self._token_id = token_id

    def answer(self, _message: bytes) -> bytes:
        self.login = Login("alice", token_id=self._token_id)
        return b""


def logged_in(token_id: str | None, tokens: set[str]) -> tuple[SaslLogin, Connection]:
    connection = Connection()
    login = SaslLogin(
        connection,  # type: ignore[arg-type]
        RULES,
        lambda _mechanism: Exchange(token_id),
        lambda _connection, _frame: b"served",
        real_world().clock,
        lambda _event, **_fields: None,
        tokens.__contains__,
    )
    login.choose("SCRAM-SHA-256", 1)
    assert login.step(b"").error_code == 0 and str(connection.principal) == "User:alice"
    assert connection.dispatch(connection, b"") == b"served"
    return login, connection


def test_a_token_that_is_no_more_ends_its_connections_at_once() -> None:
    tokens = {"t"}
    login, connection = logged_in("t", tokens)
    now_s = real_world().clock.monotonic()
    login.check(now_s)
    assert connection.closed is None and connection.dispatch is not login
    tokens.clear()
    login.check(now_s)
    assert connection.closed is not None and "token" in connection.closed


def test_a_login_whose_time_is_over_lets_nothing_pass_until_it_is_made_again() -> None:
    login, connection = logged_in(None, set())
    now_s = real_world().clock.monotonic()
    login.check(now_s + 99)
    assert not login.has_ended
    login.check(now_s + 101)
    assert login.has_ended and connection.closed is None
    frame = memoryview(METADATA.key.to_bytes(2, "big") + bytes(10))
    with pytest.raises(ConnectionBroken, match="after the login has ended"):
        connection.dispatch(connection, frame)
    assert login.choose("SCRAM-SHA-256", 1).error_code == 0
    login.step(b"")
    assert not login.has_ended and connection.dispatch(connection, frame) == b"served"
