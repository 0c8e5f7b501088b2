"""Metadata (key 3): which brokers there are, and who leads which partition.

- 0: an empty list of topics means all of them. 1: null means all and an empty list none; the controller, racks.
- 2: the cluster's id. 4: whether asking may create a topic. 5: replicas that are offline. 7: leader epochs.
- 8: what the caller may do; for the cluster only up to 10. 10: topic ids in the answer. 12: asking by topic id.
- 13: an error code for the whole answer.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@struct
class MetadataRequestTopic:
    topic_id: UUID = field("10+", ignorable=True)
    name: str | None = field("0+", nullable="10+")


@message("0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = field("0+", nullable="1+")
    allow_auto_topic_creation: bool = field("4+", default=True)
    include_cluster_authorized_operations: bool = field("8-10")
    include_topic_authorized_operations: bool = field("8+")


@struct
class MetadataResponseBroker:
    node_id: int32 = field("0+")
    host: str = field("0+")
    port: int32 = field("0+")
    rack: str | None = field("1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: int16 = field("0+")
    partition_index: int32 = field("0+")
    leader_id: int32 = field("0+")
    leader_epoch: int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[int32] = field("0+")
    isr_nodes: list[int32] = field("0+")
    offline_replicas: list[int32] = field("5+", ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: int16 = field("0+")
    name: str | None = field("0+", nullable="12+")
    topic_id: UUID = field("10+", ignorable=True)
    is_internal: bool = field("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field("0+")
    topic_authorized_operations: int32 = field("8+", default=-2147483648)


@message("0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int32 = field("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field("0+")
    cluster_id: str | None = field("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field("0+")
    cluster_authorized_operations: int32 = field("8-10", default=-2147483648)
    error_code: int16 = field("13+", ignorable=True)


API = Api(3, "Metadata", MetadataRequest, MetadataResponse)
