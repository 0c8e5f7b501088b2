"""JoinGroup (key 11): become a member of a classic group, or stay one through a rebalance.

- 1: a timeout for rebalances of its own. 4: a new member is first given an id, and asks again with it.
- 5: static members. 7: the protocol's type comes back. 8: the reason. 9: the leader may be told not to assign.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class JoinGroupRequestProtocol:
    name: str = field("0+")
    metadata: bytes = field("0+")


@message("0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = field("0+")
    session_timeout_ms: int32 = field("0+")
    rebalance_timeout_ms: int32 = field("1+", default=-1, ignorable=True)
    member_id: str = field("0+")
    group_instance_id: str | None = field("5+", nullable="5+", default=None)
    protocol_type: str = field("0+")
    protocols: list[JoinGroupRequestProtocol] = field("0+")
    reason: str | None = field("8+", nullable="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = field("0+")
    group_instance_id: str | None = field("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = field("0+")


@message("0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int32 = field("2+", ignorable=True)
    error_code: int16 = field("0+")
    generation_id: int32 = field("0+", default=-1)
    protocol_type: str | None = field("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = field("0+", nullable="7+")
    leader: str = field("0+")
    skip_assignment: bool = field("9+")
    member_id: str = field("0+")
    members: list[JoinGroupResponseMember] = field("0+")


API = Api(11, "JoinGroup", JoinGroupRequest, JoinGroupResponse)
