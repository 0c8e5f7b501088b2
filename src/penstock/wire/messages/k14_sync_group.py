"""SyncGroup (key 14): the leader hands in the assignment, every member gets its part.

- 3: static members. 5: type and name of the protocol, which must agree with the group's.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = field("0+")
    assignment: bytes = field("0+")


@message("0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = field("0+")
    generation_id: int32 = field("0+")
    member_id: str = field("0+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    protocol_type: str | None = field("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field("0+")


@message("0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field("0+")
    protocol_type: str | None = field("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = field("0+")


API = Api(14, "SyncGroup", SyncGroupRequest, SyncGroupResponse)
