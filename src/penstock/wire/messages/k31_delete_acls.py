"""DeleteAcls (key 31): delete the rules that match filters; the answer lists them. 1: pattern types."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class DeleteAclsRequestFilter:
    resource_type_filter: int8 = field("0+")
    resource_name_filter: str | None = field("0+", nullable="0+")
    pattern_type_filter: int8 = field("1+", default=3)
    principal_filter: str | None = field("0+", nullable="0+")
    host_filter: str | None = field("0+", nullable="0+")
    operation: int8 = field("0+")
    permission_type: int8 = field("0+")


@message("1-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsRequestFilter] = field("0+")


@struct
class DeleteAclsResponseMatchingAcl:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    resource_type: int8 = field("0+")
    resource_name: str = field("0+")
    pattern_type: int8 = field("1+", default=3)
    principal: str = field("0+")
    host: str = field("0+")
    operation: int8 = field("0+")
    permission_type: int8 = field("0+")


@struct
class DeleteAclsResponseFilter:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    matching_acls: list[DeleteAclsResponseMatchingAcl] = field("0+")


@message("1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int32 = field("0+")
    filter_results: list[DeleteAclsResponseFilter] = field("0+")


API = Api(31, "DeleteAcls", DeleteAclsRequest, DeleteAclsResponse)
