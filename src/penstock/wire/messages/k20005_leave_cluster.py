"""LeaveCluster (key 20005, Penstock's own, to the controller): a broker is about to stop, others should lead.

The answer says how many partitions it still leads: those that nobody else can lead now. It may ask again.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message


@message("0", flexible="0+")
class LeaveClusterRequest:
    broker_id: int32 = field("0+")
    broker_epoch: int64 = field("0+")


@message("0", flexible="0+")
class LeaveClusterResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    led_partitions: int32 = field("0+")


API = Api(20005, "LeaveCluster", LeaveClusterRequest, LeaveClusterResponse)
