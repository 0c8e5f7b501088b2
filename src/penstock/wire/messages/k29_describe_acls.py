"""DescribeAcls (key 29): the rules that match a filter. 1: pattern types. 3: users as resources."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@message("1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int8 = field("0+")
    resource_name_filter: str | None = field("0+", nullable="0+")
    pattern_type_filter: int8 = field("1+", default=3)
    principal_filter: str | None = field("0+", nullable="0+")
    host_filter: str | None = field("0+", nullable="0+")
    operation: int8 = field("0+")
    permission_type: int8 = field("0+")


@struct
class DescribeAclsResponseAcl:
    principal: str = field("0+")
    host: str = field("0+")
    operation: int8 = field("0+")
    permission_type: int8 = field("0+")


@struct
class DescribeAclsResponseResource:
    resource_type: int8 = field("0+")
    resource_name: str = field("0+")
    pattern_type: int8 = field("1+", default=3)
    acls: list[DescribeAclsResponseAcl] = field("0+")


@message("1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    resources: list[DescribeAclsResponseResource] = field("0+")


API = Api(29, "DescribeAcls", DescribeAclsRequest, DescribeAclsResponse)
