"""ConsumerGroupHeartbeat (key 68): join, stay in and leave a group of the newer protocol (KIP-848).

The member says what it subscribes to and owns, and is told its assignment; fields that did not change are null.
- 1: subscription by a regular expression; the member makes up its own id.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class ConsumerGroupHeartbeatRequestTopic:
    topic_id: UUID = field("0+")
    partitions: list[int32] = field("0+")


@message("0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = field("0+")
    member_id: str = field("0+")
    member_epoch: int32 = field("0+")
    instance_id: str | None = field("0+", nullable="0+", default=None)
    rack_id: str | None = field("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int32 = field("0+", default=-1)
    subscribed_topic_names: list[str] | None = field("0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = field("1+", nullable="1+", default=None)
    server_assignor: str | None = field("0+", nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopic] | None = field("0+", nullable="0+", default=None)


@struct
class ConsumerGroupHeartbeatResponseTopic:
    topic_id: UUID = field("0+")
    partitions: list[int32] = field("0+")


@struct
class ConsumerGroupHeartbeatResponseAssignment:
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopic] = field("0+")


@message("0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    member_id: str | None = field("0+", nullable="0+", default=None)
    member_epoch: int32 = field("0+")
    heartbeat_interval_ms: int32 = field("0+")
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = field("0+", nullable="0+", default=None)


API = Api(68, "ConsumerGroupHeartbeat", ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
