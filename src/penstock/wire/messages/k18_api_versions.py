"""ApiVersions (key 18): which APIs a broker serves, in which versions; the first request of most clients.

- 3: name and version of the client's software; features that are supported and finalized.
- 4: a feature may have 0 as its lowest level.

The header of the response is version 0 in every version, since the client may not know yet what the broker speaks.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@message("0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = field("3+", ignorable=True)
    client_software_version: str = field("3+", ignorable=True)


@struct
class ApiVersionsResponseApiVersion:
    api_key: int16 = field("0+")
    min_version: int16 = field("0+")
    max_version: int16 = field("0+")


@struct
class ApiVersionsResponseSupportedFeatureKey:
    name: str = field("3+")
    min_version: int16 = field("3+")
    max_version: int16 = field("3+")


@struct
class ApiVersionsResponseFinalizedFeatureKey:
    name: str = field("3+")
    max_version_level: int16 = field("3+")
    min_version_level: int16 = field("3+")


@message("0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: int16 = field("0+")
    api_keys: list[ApiVersionsResponseApiVersion] = field("0+")
    throttle_time_ms: int32 = field("1+", ignorable=True)
    supported_features: list[ApiVersionsResponseSupportedFeatureKey] = field("3+", tag=0, ignorable=True)
    finalized_features_epoch: int64 = field("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[ApiVersionsResponseFinalizedFeatureKey] = field("3+", tag=2, ignorable=True)
    zk_migration_ready: bool = field("3+", tag=3, ignorable=True)


API = Api(18, "ApiVersions", ApiVersionsRequest, ApiVersionsResponse)
