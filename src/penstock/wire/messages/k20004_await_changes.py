"""AwaitChanges (key 20004, Penstock's own, between brokers): tell me when you know the cluster as of this version.

The version is that of `/changes`. The answer comes when the broker has acted on it; REQUEST_TIMED_OUT if not in time.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message


@message("0", flexible="0+")
class AwaitChangesRequest:
    changes_version: int32 = field("0+")
    timeout_ms: int32 = field("0+")


@message("0", flexible="0+")
class AwaitChangesResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")


API = Api(20004, "AwaitChanges", AwaitChangesRequest, AwaitChangesResponse)
