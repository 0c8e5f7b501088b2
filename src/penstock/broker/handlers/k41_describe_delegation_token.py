"""DescribeDelegationToken (1-3): tokens with their HMACs, for those who have to do with them or may see them."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.token_callers import REQUESTERS_SINCE, may_ask
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.security.delegation_tokens import Token
from penstock.security.principal import Principal
from penstock.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeDelegationTokenResponseRenewer,
    DescribeDelegationTokenResponseToken,
)


def handle(
    broker: Broker, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    if not may_ask(context.connection):
        return DescribeDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    try:
        broker.tokens.check_is_on()
    except ApiError as error:
        return DescribeDelegationTokenResponse(error_code=error.error)
    found = broker.tokens.all()
    if request.owners is not None:
        owners = {Principal(each.principal_type, each.principal_name) for each in request.owners}
        found = [token for token in found if token.concerns(owners)]
    shown = [
        _row(token, broker.tokens.hmac_of(token), context.version)
        for token in found
        if _may_see(broker, token, context)
    ]
    return DescribeDelegationTokenResponse(tokens=shown)


def _may_see(broker: Broker, token: Token, context: RequestContext) -> bool:
    if token.concerns([context.principal]):
        return True
    may = broker.rights.allows
    return may(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, is_told=False) or may(
        context, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), is_told=False
    )


def _row(token: Token, hmac: bytes, version: int) -> DescribeDelegationTokenResponseToken:
    row = DescribeDelegationTokenResponseToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribeDelegationTokenResponseRenewer(principal_type=each.kind, principal_name=each.name)
            for each in token.renewers
        ],
    )
    if version >= REQUESTERS_SINCE:
        row.token_requester_principal_type, row.token_requester_principal_name = token.requester
    return row
