"""CreateAcls (key 30). 1: pattern types. 3: users as resources."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class CreateAclsRequestAcl:
    resource_type: int8 = field("0+")
    resource_name: str = field("0+")
    resource_pattern_type: int8 = field("1+", default=3)
    principal: str = field("0+")
    host: str = field("0+")
    operation: int8 = field("0+")
    permission_type: int8 = field("0+")


@message("1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[CreateAclsRequestAcl] = field("0+")


@struct
class CreateAclsResponseAcl:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")


@message("1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int32 = field("0+")
    results: list[CreateAclsResponseAcl] = field("0+")


API = Api(30, "CreateAcls", CreateAclsRequest, CreateAclsResponse)
