"""SaslHandshake (0-1): the way to log in. After version 0 the login's messages come without requests around them."""

from __future__ import annotations

from penstock.base.errors import Error
from penstock.broker.requests import RequestContext
from penstock.broker.sasl_login import SaslLogin
from penstock.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    login = context.connection.login
    if not isinstance(login, SaslLogin):  # of a listener without a login
        return SaslHandshakeResponse(error_code=Error.ILLEGAL_SASL_STATE, mechanisms=[])
    return login.choose(request.mechanism, context.version)
