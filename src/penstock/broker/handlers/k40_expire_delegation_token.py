"""ExpireDelegationToken (1-2): another end for a token, by owner or renewer; a negative period removes it at once."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.token_callers import NO_TIME_MS
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


async def handle(
    broker: Broker, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    try:
        broker.tokens.check_is_on()
        token = await broker.tokens.expire(request.hmac, context.principal, request.expiry_time_period_ms)
    except ApiError as error:
        return refused(request, error)
    broker.audit.record(
        "token_expired",
        token_id=token.token_id,
        owner=token.owner,
        by=context.principal,
        host=context.host,
        expires_ms=token.expires_ms,
    )
    await broker.spreading.to_all()
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms)


def refused(request: ExpireDelegationTokenRequest, error: ApiError) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.error)


def refusal(
    request: ExpireDelegationTokenRequest, context: RequestContext, error: Error
) -> ExpireDelegationTokenResponse:
    """Of somebody who may not ask at all."""
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME_MS)
