"""What consumers of a classic group put into JoinGroup and SyncGroup: opaque to the broker, read by tools.

Each is preceded by an int16 with its version. Subscription 1: partitions owned. 2: generation. 3: rack.
"""

from __future__ import annotations

from penstock.wire.schema import field, int32, message, struct


@struct
class ConsumerProtocolSubscriptionTopicPartition:
    topic: str = field("1+")
    partitions: list[int32] = field("1+")


@message("0-3")
class ConsumerProtocolSubscription:
    topics: list[str] = field("0+")
    user_data: bytes | None = field("0+", nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field("1+", ignorable=True)
    generation_id: int32 = field("2+", default=-1, ignorable=True)
    rack_id: str | None = field("3+", nullable="3+", default=None, ignorable=True)


@struct
class ConsumerProtocolAssignmentTopicPartition:
    topic: str = field("0+")
    partitions: list[int32] = field("0+")


@message("0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field("0+")
    user_data: bytes | None = field("0+", nullable="0+", default=None)
