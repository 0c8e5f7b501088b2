"""AlterUserScramCredentials (0): set and delete users' credentials, by the controller; all of a user's or nothing."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.broker.users import Upsertion
from penstock.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseUser,
)


async def handle(
    broker: Broker, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    results = []
    for user in _users(request):
        try:
            deletions = [each.mechanism for each in request.deletions if each.name == user]
            upsertions = [
                Upsertion(each.mechanism, each.iterations, each.salt, each.salted_password)
                for each in request.upsertions
                if each.name == user
            ]
            await broker.users.alter(user, deletions, upsertions)
        except ApiError as error:
            results.append(_row(user, error))
        else:
            results.append(_row(user))
            broker.audit.record(
                "user_altered",
                user=user,
                by=str(context.principal),
                mechanisms_set=[each.mechanism for each in upsertions] or None,
                mechanisms_deleted=deletions or None,
            )
    await broker.spreading.to_all()
    return AlterUserScramCredentialsResponse(results=results)


def refused(request: AlterUserScramCredentialsRequest, error: ApiError) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(results=[_row(user, error) for user in _users(request)])


def _users(request: AlterUserScramCredentialsRequest) -> list[str]:
    named = [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
    return list(dict.fromkeys(named))


def _row(user: str, error: ApiError | None = None) -> AlterUserScramCredentialsResponseUser:
    row = AlterUserScramCredentialsResponseUser(user=user, error_message=None)
    if error is not None:
        row.error_code, row.error_message = error.error, error.message
    return row
