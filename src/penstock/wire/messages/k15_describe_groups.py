"""DescribeGroups (key 15): state and members of classic groups.

- 3: what the caller may do. 4: static members. 6: an unknown group is an error, with a message.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@message("0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = field("0+")
    include_authorized_operations: bool = field("3+")


@struct
class DescribeGroupsResponseMember:
    member_id: str = field("0+")
    group_instance_id: str | None = field("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = field("0+")
    client_host: str = field("0+")
    member_metadata: bytes = field("0+")
    member_assignment: bytes = field("0+")


@struct
class DescribeGroupsResponseGroup:
    error_code: int16 = field("0+")
    error_message: str | None = field("6+", nullable="6+", default=None)
    group_id: str = field("0+")
    group_state: str = field("0+")
    protocol_type: str = field("0+")
    protocol_data: str = field("0+")
    members: list[DescribeGroupsResponseMember] = field("0+")
    authorized_operations: int32 = field("3+", default=-2147483648)


@message("0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int32 = field("1+", ignorable=True)
    groups: list[DescribeGroupsResponseGroup] = field("0+")


API = Api(15, "DescribeGroups", DescribeGroupsRequest, DescribeGroupsResponse)
