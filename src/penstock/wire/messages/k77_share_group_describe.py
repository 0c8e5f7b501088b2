"""ShareGroupDescribe (key 77): state and members of share groups."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@message("1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[str] = field("0+")
    include_authorized_operations: bool = field("0+")


@struct
class ShareGroupDescribeResponseTopic:
    topic_id: UUID = field("0+")
    topic_name: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class ShareGroupDescribeResponseAssignment:
    topic_partitions: list[ShareGroupDescribeResponseTopic] = field("0+")


@struct
class ShareGroupDescribeResponseMember:
    member_id: str = field("0+")
    rack_id: str | None = field("0+", nullable="0+", default=None)
    member_epoch: int32 = field("0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    subscribed_topic_names: list[str] = field("0+")
    assignment: ShareGroupDescribeResponseAssignment = field("0+")


@struct
class ShareGroupDescribeResponseGroup:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    group_id: str = field("0+")
    group_state: str = field("0+")
    group_epoch: int32 = field("0+")
    assignment_epoch: int32 = field("0+")
    assignor_name: str = field("0+")
    members: list[ShareGroupDescribeResponseMember] = field("0+")
    authorized_operations: int32 = field("0+", default=-2147483648)


@message("1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: int32 = field("0+")
    groups: list[ShareGroupDescribeResponseGroup] = field("0+")


API = Api(77, "ShareGroupDescribe", ShareGroupDescribeRequest, ShareGroupDescribeResponse)
