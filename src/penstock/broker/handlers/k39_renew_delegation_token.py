"""RenewDelegationToken (1-2): a new end for a token, by its owner or a renewer."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.token_callers import NO_TIME_MS
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def handle(
    broker: Broker, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    try:
        broker.tokens.check_is_on()
        token = await broker.tokens.renew(request.hmac, context.principal, request.renew_period_ms)
    except ApiError as error:
        return refused(request, error)
    broker.audit.record(
        "token_renewed",
        token_id=token.token_id,
        owner=token.owner,
        by=context.principal,
        host=context.host,
        expires_ms=token.expires_ms,
    )
    await broker.spreading.to_all()
    return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms)


def refused(request: RenewDelegationTokenRequest, error: ApiError) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.error)


def refusal(
    request: RenewDelegationTokenRequest, context: RequestContext, error: Error
) -> RenewDelegationTokenResponse:
    """Of somebody who may not ask at all."""
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME_MS)
