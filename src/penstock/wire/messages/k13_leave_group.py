"""LeaveGroup (key 13): members leave a classic group. 3: several at once, static ones too. 5: the reason."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class LeaveGroupRequestMember:
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    reason: str | None = field("5+", nullable="5+", default=None, ignorable=True)


@message("0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = field("0+")
    member_id: str = field("0-2")
    members: list[LeaveGroupRequestMember] = field("3+")


@struct
class LeaveGroupResponseMember:
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", nullable="3+")
    error_code: int16 = field("3+")


@message("0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field("0+")
    members: list[LeaveGroupResponseMember] = field("3+")


API = Api(13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse)
