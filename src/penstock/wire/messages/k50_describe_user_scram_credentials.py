"""DescribeUserScramCredentials (key 50): which SCRAM mechanisms users have, never the secrets."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class DescribeUserScramCredentialsRequestUser:
    name: str = field("0+")


@message("0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[DescribeUserScramCredentialsRequestUser] | None = field("0+", nullable="0+")


@struct
class DescribeUserScramCredentialsResponseCredential:
    mechanism: int8 = field("0+")
    iterations: int32 = field("0+")


@struct
class DescribeUserScramCredentialsResponseUser:
    user: str = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    credential_infos: list[DescribeUserScramCredentialsResponseCredential] = field("0+")


@message("0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResponseUser] = field("0+")


API = Api(50, "DescribeUserScramCredentials", DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)
