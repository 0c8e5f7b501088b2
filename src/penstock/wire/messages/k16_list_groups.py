"""ListGroups (key 16): the groups this broker looks after. 4: by state. 5: by type."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@message("0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = field("4+")
    types_filter: list[str] = field("5+")


@struct
class ListGroupsResponseGroup:
    group_id: str = field("0+")
    protocol_type: str = field("0+")
    group_state: str = field("4+", ignorable=True)
    group_type: str = field("5+", ignorable=True)


@message("0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field("0+")
    groups: list[ListGroupsResponseGroup] = field("0+")


API = Api(16, "ListGroups", ListGroupsRequest, ListGroupsResponse)
