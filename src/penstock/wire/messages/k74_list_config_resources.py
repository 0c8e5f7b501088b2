"""ListConfigResources (key 74): names of the resources that have settings.

- 0: only client metrics subscriptions. 1: of chosen types, all if none is named.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@message("0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int8] = field("1+")


@struct
class ListConfigResourcesResponseResource:
    resource_name: str = field("0+")
    resource_type: int8 = field("1+", default=16, ignorable=True)


@message("0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    config_resources: list[ListConfigResourcesResponseResource] = field("0+")


API = Api(74, "ListConfigResources", ListConfigResourcesRequest, ListConfigResourcesResponse)
