"""DescribeUserScramCredentials (0): which users there are, with which mechanisms; never anything secret."""

from __future__ import annotations

from collections import Counter

from penstock.base.errors import Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseCredential,
    DescribeUserScramCredentialsResponseUser,
)


def handle(
    broker: Broker, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    if not broker.rights.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER):
        error, message = Error.CLUSTER_AUTHORIZATION_FAILED, "the cluster may not be described"
        nameless = DescribeUserScramCredentialsResponseUser(error_code=error, error_message=message)
        return DescribeUserScramCredentialsResponse(
            error_code=error, error_message=message, results=[nameless for _ in request.users or ()]
        )
    asked = [user.name for user in request.users or ()]
    repeats = {name for name, count in Counter(asked).items() if count > 1}
    names = list(dict.fromkeys(asked)) or broker.users.names()  # no names: everybody
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_row(broker, name, is_repeated=name in repeats) for name in names]
    )


def _row(broker: Broker, name: str, *, is_repeated: bool) -> DescribeUserScramCredentialsResponseUser:
    row = DescribeUserScramCredentialsResponseUser(user=name, error_message=None)
    if is_repeated:
        row.error_code = Error.DUPLICATE_RESOURCE
        row.error_message = f"the request names {name!r} more than once"
        return row
    row.credential_infos = [
        DescribeUserScramCredentialsResponseCredential(mechanism=mechanism, iterations=iterations)
        for mechanism, iterations in broker.users.iterations_of(name).items()
    ]
    if not row.credential_infos:
        row.error_code = Error.RESOURCE_NOT_FOUND
        row.error_message = f"there is no user {name!r} with a SCRAM credential"
    return row
