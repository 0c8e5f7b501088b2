"""DescribeConfigs (key 32): settings of topics and brokers, with their sources.

- 1: synonyms, which are the other places that could have set it. 3: type and documentation of each setting.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class DescribeConfigsRequestResource:
    resource_type: int8 = field("0+")
    resource_name: str = field("0+")
    configuration_keys: list[str] | None = field("0+", nullable="0+")


@message("1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsRequestResource] = field("0+")
    include_synonyms: bool = field("1+")
    include_documentation: bool = field("3+")


@struct
class DescribeConfigsResponseSynonym:
    name: str = field("1+")
    value: str | None = field("1+", nullable="0+")
    source: int8 = field("1+")


@struct
class DescribeConfigsResponseConfig:
    name: str = field("0+")
    value: str | None = field("0+", nullable="0+")
    read_only: bool = field("0+")
    config_source: int8 = field("1+", default=-1, ignorable=True)
    is_sensitive: bool = field("0+")
    synonyms: list[DescribeConfigsResponseSynonym] = field("1+", ignorable=True)
    config_type: int8 = field("3+", ignorable=True)
    documentation: str | None = field("3+", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResponseResource:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    resource_type: int8 = field("0+")
    resource_name: str = field("0+")
    configs: list[DescribeConfigsResponseConfig] = field("0+")


@message("1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int32 = field("0+")
    results: list[DescribeConfigsResponseResource] = field("0+")


API = Api(32, "DescribeConfigs", DescribeConfigsRequest, DescribeConfigsResponse)
