"""StreamsGroupHeartbeat (key 88): join, stay in and leave a group of Kafka Streams (KIP-1071).

The member describes its topology and the tasks it owns, and is told the tasks to run.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, int64, message, struct, uint16


@struct
class StreamsGroupHeartbeatRequestKeyValue:
    key: str = field("0+")
    value: str = field("0+")


@struct
class StreamsGroupHeartbeatRequestTopicInfo:
    name: str = field("0+")
    partitions: int32 = field("0+")
    replication_factor: int16 = field("0+")
    topic_configs: list[StreamsGroupHeartbeatRequestKeyValue] = field("0+")


@struct
class StreamsGroupHeartbeatRequestCopartitionGroup:
    source_topics: list[int16] = field("0+")
    source_topic_regex: list[int16] = field("0+")
    repartition_source_topics: list[int16] = field("0+")


@struct
class StreamsGroupHeartbeatRequestSubtopology:
    subtopology_id: str = field("0+")
    source_topics: list[str] = field("0+")
    source_topic_regex: list[str] = field("0+")
    state_changelog_topics: list[StreamsGroupHeartbeatRequestTopicInfo] = field("0+")
    repartition_sink_topics: list[str] = field("0+")
    repartition_source_topics: list[StreamsGroupHeartbeatRequestTopicInfo] = field("0+")
    copartition_groups: list[StreamsGroupHeartbeatRequestCopartitionGroup] = field("0+")


@struct
class StreamsGroupHeartbeatRequestTopology:
    epoch: int32 = field("0+")
    subtopologies: list[StreamsGroupHeartbeatRequestSubtopology] = field("0+")


@struct
class StreamsGroupHeartbeatRequestTaskIds:
    subtopology_id: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class StreamsGroupHeartbeatRequestEndpoint:
    host: str = field("0+")
    port: uint16 = field("0+")


@struct
class StreamsGroupHeartbeatRequestTaskOffset:
    subtopology_id: str = field("0+")
    partition: int32 = field("0+")
    offset: int64 = field("0+")


@message("0", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: str = field("0+")
    member_id: str = field("0+")
    member_epoch: int32 = field("0+")
    endpoint_information_epoch: int32 = field("0+")
    instance_id: str | None = field("0+", nullable="0+", default=None)
    rack_id: str | None = field("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int32 = field("0+", default=-1)
    topology: StreamsGroupHeartbeatRequestTopology | None = field("0+", nullable="0+", default=None)
    active_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = field("0+", nullable="0+", default=None)
    standby_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = field("0+", nullable="0+", default=None)
    warmup_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = field("0+", nullable="0+", default=None)
    process_id: str | None = field("0+", nullable="0+", default=None)
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None = field("0+", nullable="0+", default=None)
    client_tags: list[StreamsGroupHeartbeatRequestKeyValue] | None = field("0+", nullable="0+", default=None)
    task_offsets: list[StreamsGroupHeartbeatRequestTaskOffset] | None = field("0+", nullable="0+", default=None)
    task_end_offsets: list[StreamsGroupHeartbeatRequestTaskOffset] | None = field("0+", nullable="0+", default=None)
    shutdown_application: bool = field("0+")


@struct
class StreamsGroupHeartbeatResponseStatus:
    status_code: int8 = field("0+")
    status_detail: str = field("0+")


@struct
class StreamsGroupHeartbeatResponseTaskIds:
    subtopology_id: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class StreamsGroupHeartbeatResponseEndpoint:
    host: str = field("0+")
    port: uint16 = field("0+")


@struct
class StreamsGroupHeartbeatResponseTopicPartition:
    topic: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class StreamsGroupHeartbeatResponseEndpointToPartitions:
    user_endpoint: StreamsGroupHeartbeatResponseEndpoint = field("0+")
    active_partitions: list[StreamsGroupHeartbeatResponseTopicPartition] = field("0+")
    standby_partitions: list[StreamsGroupHeartbeatResponseTopicPartition] = field("0+")


@message("0", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    member_id: str = field("0+")
    member_epoch: int32 = field("0+")
    heartbeat_interval_ms: int32 = field("0+")
    acceptable_recovery_lag: int32 = field("0+")
    task_offset_interval_ms: int32 = field("0+")
    status: list[StreamsGroupHeartbeatResponseStatus] | None = field("0+", nullable="0+")
    active_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = field("0+", nullable="0+", default=None)
    standby_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = field("0+", nullable="0+", default=None)
    warmup_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = field("0+", nullable="0+", default=None)
    endpoint_information_epoch: int32 = field("0+")
    partitions_by_user_endpoint: list[StreamsGroupHeartbeatResponseEndpointToPartitions] | None = field(
        "0+", nullable="0+", default=None
    )


API = Api(88, "StreamsGroupHeartbeat", StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse)
