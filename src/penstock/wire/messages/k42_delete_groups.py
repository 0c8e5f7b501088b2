"""DeleteGroups (key 42): delete empty groups with their offsets."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@message("0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = field("0+")


@struct
class DeleteGroupsResponseGroup:
    group_id: str = field("0+")
    error_code: int16 = field("0+")


@message("0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int32 = field("0+")
    results: list[DeleteGroupsResponseGroup] = field("0+")


API = Api(42, "DeleteGroups", DeleteGroupsRequest, DeleteGroupsResponse)
