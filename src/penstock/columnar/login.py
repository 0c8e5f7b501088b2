"""Logging in over a fresh connection: which mechanism, then its messages until both sides are content."""

from __future__ import annotations

import secrets

from penstock.base.errors import Error
from penstock.columnar.connection import Connection
from penstock.columnar.errors import NotAllowed, error_of
from penstock.columnar.security_settings import LoginSettings, client_of
from penstock.sasl.exchange import LoginFailed
from penstock.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from penstock.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest

NONCE_BYTES = 24
_ROUNDS_MAX = 10


def log_in(connection: Connection, login: LoginSettings) -> float | None:
    """For how many seconds the login holds, or None if it is for good; NotAllowed."""
    what = f"logging in at {connection.address} with {login.mechanism}"
    chosen = connection.ask(SaslHandshakeRequest(mechanism=login.mechanism), 1)
    if chosen.error_code:
        offered = ", ".join(chosen.mechanisms[:20]) or "none"
        raise NotAllowed(what, error_of(chosen.error_code), f"the broker's listener offers {offered}")
    exchange = client_of(login, secrets.token_urlsafe(NONCE_BYTES))
    message: bytes | None = exchange.first()
    lifetime_ms = 0
    for _ in range(_ROUNDS_MAX):
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=message or b""))
        if answer.error_code:
            raise NotAllowed(what, error_of(answer.error_code), answer.error_message)
        lifetime_ms = answer.session_lifetime_ms
        try:
            message = exchange.answer(answer.auth_bytes)
        except LoginFailed as failed:
            raise NotAllowed(what, Error.SASL_AUTHENTICATION_FAILED, str(failed)) from None
        if exchange.is_done:
            return lifetime_ms / 1000 if lifetime_ms > 0 else None
    raise NotAllowed(what, Error.SASL_AUTHENTICATION_FAILED, "the broker does not come to an end")
