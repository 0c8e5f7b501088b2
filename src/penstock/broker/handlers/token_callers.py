"""Who may ask for delegation tokens, and about them: whoever has shown who he is, and not by a token.

That is a question about the connection, so it is answered by the broker that was asked, before the request goes on to
the controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.base.errors import Error
from penstock.broker.connection import Connection
from penstock.broker.requests import AsyncHandler, RequestContext
from penstock.broker.sasl_login import SaslLogin
from penstock.security.principal import ANONYMOUS

NO_TIME_MS = -1
"""In answers that refuse something before anybody has looked for a token."""
REQUESTERS_SINCE = 3
"""The version in which answers began to say who asked for a token."""


def may_ask(connection: Connection) -> bool:
    if isinstance(connection.login, SaslLogin):
        return connection.login.token_id is None
    return connection.principal != ANONYMOUS


def from_known(refusal: Callable[[Any, RequestContext, Error], Any], serve: AsyncHandler) -> AsyncHandler:
    """Serve those who may ask; the others are refused."""

    async def serve_known(request: Any, context: RequestContext) -> Any:
        if not may_ask(context.connection):
            return refusal(request, context, Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        return await serve(request, context)

    return serve_known
