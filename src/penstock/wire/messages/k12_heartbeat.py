"""Heartbeat (key 12): a member of a classic group is alive. 3: static members."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message


@message("0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = field("0+")
    generation_id: int32 = field("0+")
    member_id: str = field("0+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)


@message("0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field("0+")


API = Api(12, "Heartbeat", HeartbeatRequest, HeartbeatResponse)
