"""StreamsGroupDescribe (key 89): state, topology and members of Kafka Streams groups."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct, uint16


@message("0", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: list[str] = field("0+")
    include_authorized_operations: bool = field("0+")


@struct
class StreamsGroupDescribeResponseKeyValue:
    key: str = field("0+")
    value: str = field("0+")


@struct
class StreamsGroupDescribeResponseTopicInfo:
    name: str = field("0+")
    partitions: int32 = field("0+")
    replication_factor: int16 = field("0+")
    topic_configs: list[StreamsGroupDescribeResponseKeyValue] = field("0+")


@struct
class StreamsGroupDescribeResponseSubtopology:
    subtopology_id: str = field("0+")
    source_topics: list[str] = field("0+")
    repartition_sink_topics: list[str] = field("0+")
    state_changelog_topics: list[StreamsGroupDescribeResponseTopicInfo] = field("0+")
    repartition_source_topics: list[StreamsGroupDescribeResponseTopicInfo] = field("0+")


@struct
class StreamsGroupDescribeResponseTopology:
    epoch: int32 = field("0+")
    subtopologies: list[StreamsGroupDescribeResponseSubtopology] | None = field("0+", nullable="0+", default=None)


@struct
class StreamsGroupDescribeResponseEndpoint:
    host: str = field("0+")
    port: uint16 = field("0+")


@struct
class StreamsGroupDescribeResponseTaskOffset:
    subtopology_id: str = field("0+")
    partition: int32 = field("0+")
    offset: int64 = field("0+")


@struct
class StreamsGroupDescribeResponseTaskIds:
    subtopology_id: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class StreamsGroupDescribeResponseAssignment:
    active_tasks: list[StreamsGroupDescribeResponseTaskIds] = field("0+")
    standby_tasks: list[StreamsGroupDescribeResponseTaskIds] = field("0+")
    warmup_tasks: list[StreamsGroupDescribeResponseTaskIds] = field("0+")


@struct
class StreamsGroupDescribeResponseMember:
    member_id: str = field("0+")
    member_epoch: int32 = field("0+")
    instance_id: str | None = field("0+", nullable="0+", default=None)
    rack_id: str | None = field("0+", nullable="0+", default=None)
    client_id: str = field("0+")
    client_host: str = field("0+")
    topology_epoch: int32 = field("0+")
    process_id: str = field("0+")
    user_endpoint: StreamsGroupDescribeResponseEndpoint | None = field("0+", nullable="0+", default=None)
    client_tags: list[StreamsGroupDescribeResponseKeyValue] = field("0+")
    task_offsets: list[StreamsGroupDescribeResponseTaskOffset] = field("0+")
    task_end_offsets: list[StreamsGroupDescribeResponseTaskOffset] = field("0+")
    assignment: StreamsGroupDescribeResponseAssignment = field("0+")
    target_assignment: StreamsGroupDescribeResponseAssignment = field("0+")
    is_classic: bool = field("0+")


@struct
class StreamsGroupDescribeResponseGroup:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    group_id: str = field("0+")
    group_state: str = field("0+")
    group_epoch: int32 = field("0+")
    assignment_epoch: int32 = field("0+")
    topology: StreamsGroupDescribeResponseTopology | None = field("0+", nullable="0+", default=None)
    members: list[StreamsGroupDescribeResponseMember] = field("0+")
    authorized_operations: int32 = field("0+", default=-2147483648)


@message("0", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: int32 = field("0+")
    groups: list[StreamsGroupDescribeResponseGroup] = field("0+")


API = Api(89, "StreamsGroupDescribe", StreamsGroupDescribeRequest, StreamsGroupDescribeResponse)
