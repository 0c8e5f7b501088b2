"""AlterUserScramCredentials (key 51): set or delete users' SCRAM credentials."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class AlterUserScramCredentialsRequestDeletion:
    name: str = field("0+")
    mechanism: int8 = field("0+")


@struct
class AlterUserScramCredentialsRequestUpsertion:
    name: str = field("0+")
    mechanism: int8 = field("0+")
    iterations: int32 = field("0+")
    salt: bytes = field("0+")
    salted_password: bytes = field("0+")


@message("0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[AlterUserScramCredentialsRequestDeletion] = field("0+")
    upsertions: list[AlterUserScramCredentialsRequestUpsertion] = field("0+")


@struct
class AlterUserScramCredentialsResponseUser:
    user: str = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")


@message("0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int32 = field("0+")
    results: list[AlterUserScramCredentialsResponseUser] = field("0+")


API = Api(51, "AlterUserScramCredentials", AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse)
