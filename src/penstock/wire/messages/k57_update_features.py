"""UpdateFeatures (key 57): raise or lower the level of cluster features. 1: dry runs. 2: one answer for all of them."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class UpdateFeaturesRequestFeature:
    feature: str = field("0+")
    max_version_level: int16 = field("0+")
    allow_downgrade: bool = field("0")
    upgrade_type: int8 = field("1+", default=1)


@message("0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int32 = field("0+", default=60000)
    feature_updates: list[UpdateFeaturesRequestFeature] = field("0+")
    validate_only: bool = field("1+")


@struct
class UpdateFeaturesResponseFeature:
    feature: str = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")


@message("0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    results: list[UpdateFeaturesResponseFeature] = field("0-1", ignorable=True)


API = Api(57, "UpdateFeatures", UpdateFeaturesRequest, UpdateFeaturesResponse)
