"""FindCoordinator (key 10): which broker looks after a group or a transactional id.

- 1: the kind of key. 4: many keys in one request, answered one by one. 6: the state of share groups.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@message("0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = field("0-3")
    key_type: int8 = field("1+")
    coordinator_keys: list[str] = field("4+")


@struct
class FindCoordinatorResponseCoordinator:
    key: str = field("4+")
    node_id: int32 = field("4+")
    host: str = field("4+")
    port: int32 = field("4+")
    error_code: int16 = field("4+")
    error_message: str | None = field("4+", nullable="4+", ignorable=True)


@message("0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field("0-3")
    error_message: str | None = field("1-3", nullable="1-3", ignorable=True)
    node_id: int32 = field("0-3")
    host: str = field("0-3")
    port: int32 = field("0-3")
    coordinators: list[FindCoordinatorResponseCoordinator] = field("4+")


API = Api(10, "FindCoordinator", FindCoordinatorRequest, FindCoordinatorResponse)
