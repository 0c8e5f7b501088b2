"""ReplicasFailed (key 20006, Penstock's own): replicas of a living broker are in a log directory that has failed.

Between brokers only: from the broker that holds them to the controller. An error is one for the whole request.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class ReplicasFailedRequestTopic:
    topic_id: UUID = field("0+")
    partitions: list[int32] = field("0+")


@message("0", flexible="0+")
class ReplicasFailedRequest:
    broker_id: int32 = field("0+")
    broker_epoch: int64 = field("0+", default=-1)
    topics: list[ReplicasFailedRequestTopic] = field("0+")


@message("0", flexible="0+")
class ReplicasFailedResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")


API = Api(20006, "ReplicasFailed", ReplicasFailedRequest, ReplicasFailedResponse)
