"""ShareGroupHeartbeat (key 76): join, stay in and leave a share group (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@message("1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str = field("0+")
    member_id: str = field("0+")
    member_epoch: int32 = field("0+")
    rack_id: str | None = field("0+", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field("0+", nullable="0+", default=None)


@struct
class ShareGroupHeartbeatResponseTopic:
    topic_id: UUID = field("0+")
    partitions: list[int32] = field("0+")


@struct
class ShareGroupHeartbeatResponseAssignment:
    topic_partitions: list[ShareGroupHeartbeatResponseTopic] = field("0+")


@message("1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    member_id: str | None = field("0+", nullable="0+", default=None)
    member_epoch: int32 = field("0+")
    heartbeat_interval_ms: int32 = field("0+")
    assignment: ShareGroupHeartbeatResponseAssignment | None = field("0+", nullable="0+", default=None)


API = Api(76, "ShareGroupHeartbeat", ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse)
