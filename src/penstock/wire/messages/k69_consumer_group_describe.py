"""ConsumerGroupDescribe (key 69): state and members of groups of the newer protocol. 1: kind of each member."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@message("0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = field("0+")
    include_authorized_operations: bool = field("0+")


@struct
class ConsumerGroupDescribeResponseTopic:
    topic_id: UUID = field("0+")
    topic_name: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class ConsumerGroupDescribeResponseAssignment:
    topic_partitions: list[ConsumerGroupDescribeResponseTopic] = field("0+")


@struct
class ConsumerGroupDescribeResponseMember:
    member_id: str = field("0+")
    instance_id: str | None = field("0+", nullable="0+", default=None)
    rack_id: str | None = field("0+", nullable="0+", default=None)
    member_epoch: int32 = field("0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    subscribed_topic_names: list[str] = field("0+")
    subscribed_topic_regex: str | None = field("0+", nullable="0+", default=None)
    assignment: ConsumerGroupDescribeResponseAssignment = field("0+")
    target_assignment: ConsumerGroupDescribeResponseAssignment = field("0+")
    member_type: int8 = field("1+", default=-1, ignorable=True)


@struct
class ConsumerGroupDescribeResponseGroup:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    group_id: str = field("0+")
    group_state: str = field("0+")
    group_epoch: int32 = field("0+")
    assignment_epoch: int32 = field("0+")
    assignor_name: str = field("0+")
    members: list[ConsumerGroupDescribeResponseMember] = field("0+")
    authorized_operations: int32 = field("0+", default=-2147483648)


@message("0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int32 = field("0+")
    groups: list[ConsumerGroupDescribeResponseGroup] = field("0+")


API = Api(69, "ConsumerGroupDescribe", ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
