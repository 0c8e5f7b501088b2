"""DescribeCluster (key 60): id, controller and brokers. 1: which kind of endpoints. 2: fenced brokers too."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@message("0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = field("0+")
    endpoint_type: int8 = field("1+", default=1)
    include_fenced_brokers: bool = field("2+")


@struct
class DescribeClusterResponseBroker:
    broker_id: int32 = field("0+")
    host: str = field("0+")
    port: int32 = field("0+")
    rack: str | None = field("0+", nullable="0+", default=None)
    is_fenced: bool = field("2+")


@message("0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    endpoint_type: int8 = field("1+", default=1)
    cluster_id: str = field("0+")
    controller_id: int32 = field("0+", default=-1)
    brokers: list[DescribeClusterResponseBroker] = field("0+")
    cluster_authorized_operations: int32 = field("0+", default=-2147483648)


API = Api(60, "DescribeCluster", DescribeClusterRequest, DescribeClusterResponse)
