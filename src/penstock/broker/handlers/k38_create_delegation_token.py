"""CreateDelegationToken (1-3): a token for whoever asks, or (3) for another user, which needs the right to do so."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.delegation_tokens import Asked
from penstock.broker.handlers.token_callers import NO_TIME_MS, REQUESTERS_SINCE
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.security.principal import USER, Principal
from penstock.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


async def handle(
    broker: Broker, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    owner = _owner(request, context)
    may = broker.rights.allows
    if owner != context.principal and not may(context, Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return refusal(request, context, Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    if any(renewer.kind != USER for renewer in renewers):
        return refusal(request, context, Error.INVALID_PRINCIPAL_TYPE)
    answer = _answer(owner, context)
    try:
        broker.tokens.check_is_on()
        token = await broker.tokens.create(Asked(owner, context.principal, renewers, request.max_lifetime_ms))
    except ApiError as error:
        answer.error_code = error.error
        return answer
    broker.audit.record(
        "token_created",
        token_id=token.token_id,
        owner=owner,
        by=context.principal,
        host=context.host,
        renewers=[str(each) for each in renewers] or None,
        expires_ms=token.expires_ms,
        max_ms=token.max_ms,
    )
    await broker.spreading.to_all()
    answer.issue_timestamp_ms, answer.expiry_timestamp_ms = token.issued_ms, token.expires_ms
    answer.max_timestamp_ms = token.max_ms
    answer.token_id, answer.hmac = token.token_id, broker.tokens.hmac_of(token)
    return answer


def refused(request: CreateDelegationTokenRequest, error: ApiError) -> CreateDelegationTokenResponse:
    """Where no controller could be asked."""
    return CreateDelegationTokenResponse(error_code=error.error)


def refusal(
    request: CreateDelegationTokenRequest, context: RequestContext, error: Error
) -> CreateDelegationTokenResponse:
    """Of somebody who may not ask for this token."""
    answer = _answer(_owner(request, context), context)
    answer.error_code = error
    answer.issue_timestamp_ms = answer.expiry_timestamp_ms = answer.max_timestamp_ms = NO_TIME_MS
    return answer


def _owner(request: CreateDelegationTokenRequest, context: RequestContext) -> Principal:
    if not request.owner_principal_name:
        return context.principal
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def _answer(owner: Principal, context: RequestContext) -> CreateDelegationTokenResponse:
    answer = CreateDelegationTokenResponse(principal_type=owner.kind, principal_name=owner.name)
    if context.version >= REQUESTERS_SINCE:
        answer.token_requester_principal_type, answer.token_requester_principal_name = context.principal
    return answer
