"""The records of __consumer_offsets: committed offsets, and groups of every kind.

The key of a record begins with an int16 that says what it is (`OFFSETS_TOPIC_RECORDS` below), followed by the key at
version 0; the value begins with an int16 that is its version. A record without a value deletes. 0 is an old way to
write what 1 is; 2 is a classic group, 3 to 8 and 16 a consumer group of the newer protocol, 10 to 15 a share group
and 17 to 23 a group of Kafka Streams.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.schema import Message, field, int8, int16, int32, int64, message, struct, uint16


@message("0")
class LegacyOffsetCommitKey:
    group: str = field("0")
    topic: str = field("0")
    partition: int32 = field("0")


@message("0")
class LegacyOffsetCommitValue:
    offset: int64 = field("0")
    metadata: str = field("0")
    commit_timestamp: int64 = field("0")


@message("0")
class OffsetCommitKey:
    group: str = field("0")
    topic: str = field("0")
    partition: int32 = field("0")


@message("0-4", flexible="4+")
class OffsetCommitValue:
    offset: int64 = field("0+")
    leader_epoch: int32 = field("3+", default=-1, ignorable=True)
    metadata: str = field("0+")
    commit_timestamp: int64 = field("0+")
    expire_timestamp: int64 = field("1", default=-1, ignorable=True)
    topic_id: UUID = field("4+", tag=0, ignorable=True)


@message("0")
class GroupMetadataKey:
    group: str = field("0")


@struct
class GroupMetadataValueMemberMetadata:
    member_id: str = field("0+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field("0+")
    client_host: str = field("0+")
    rebalance_timeout: int32 = field("1+", default=-1, ignorable=True)
    session_timeout: int32 = field("0+")
    subscription: bytes = field("0+")
    assignment: bytes = field("0+")


@message("0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = field("0+")
    generation: int32 = field("0+")
    protocol: str | None = field("0+", nullable="0+")
    leader: str | None = field("0+", nullable="0+")
    current_state_timestamp: int64 = field("2+", default=-1, ignorable=True)
    members: list[GroupMetadataValueMemberMetadata] = field("0+")


@message("0")
class ConsumerGroupMetadataKey:
    group_id: str = field("0")


@message("0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int32 = field("0+")
    metadata_hash: int64 = field("0+", tag=0)


@message("0")
class ConsumerGroupPartitionMetadataKey:
    group_id: str = field("0")


@struct
class ConsumerGroupPartitionMetadataValuePartitionMetadata:
    partition: int32 = field("0+")
    racks: list[str] = field("0+")


@struct
class ConsumerGroupPartitionMetadataValueTopicMetadata:
    topic_id: UUID = field("0+")
    topic_name: str = field("0+")
    num_partitions: int32 = field("0+")
    partition_metadata: list[ConsumerGroupPartitionMetadataValuePartitionMetadata] = field("0+")


@message("0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[ConsumerGroupPartitionMetadataValueTopicMetadata] = field("0+")


@message("0")
class ConsumerGroupMemberMetadataKey:
    group_id: str = field("0")
    member_id: str = field("0")


@struct
class ConsumerGroupMemberMetadataValueClassicProtocol:
    name: str = field("0+")
    metadata: bytes = field("0+")


@struct
class ConsumerGroupMemberMetadataValueClassicMemberMetadata:
    session_timeout_ms: int32 = field("0+")
    supported_protocols: list[ConsumerGroupMemberMetadataValueClassicProtocol] = field("0+")


@message("0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = field("0+", nullable="0+")
    rack_id: str | None = field("0+", nullable="0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    subscribed_topic_names: list[str] = field("0+")
    subscribed_topic_regex: str | None = field("0+", nullable="0+")
    rebalance_timeout_ms: int32 = field("0+", default=-1)
    server_assignor: str | None = field("0+", nullable="0+")
    classic_member_metadata: ConsumerGroupMemberMetadataValueClassicMemberMetadata | None = field(
        "0+", nullable="0+", tag=0
    )


@message("0")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = field("0")


@message("0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32 = field("0+")
    assignment_timestamp: int64 = field("0+", tag=0, ignorable=True)


@message("0")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = field("0")
    member_id: str = field("0")


@struct
class ConsumerGroupTargetAssignmentMemberValueTopicPartition:
    topic_id: UUID = field("0+")
    partitions: list[int32] = field("0+")


@message("0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValueTopicPartition] = field("0+")


@message("0")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = field("0")
    member_id: str = field("0")


@struct
class ConsumerGroupCurrentMemberAssignmentValueTopicPartitions:
    topic_id: UUID = field("0+")
    partitions: list[int32] = field("0+")
    assignment_epochs: list[int32] | None = field("0+", nullable="0+", tag=0)


@message("0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int32 = field("0+")
    previous_member_epoch: int32 = field("0+")
    state: int8 = field("0+")
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions] = field("0+")
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions] = field("0+")


@message("0")
class ShareGroupMemberMetadataKey:
    group_id: str = field("0")
    member_id: str = field("0")


@message("0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None = field("0+", nullable="0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    subscribed_topic_names: list[str] = field("0+")


@message("0")
class ShareGroupMetadataKey:
    group_id: str = field("0")


@message("0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int32 = field("0+")
    metadata_hash: int64 = field("0+")


@message("0")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = field("0")


@message("0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32 = field("0+")
    assignment_timestamp: int64 = field("0+", tag=0, ignorable=True)


@message("0")
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = field("0")
    member_id: str = field("0")


@struct
class ShareGroupTargetAssignmentMemberValueTopicPartition:
    topic_id: UUID = field("0+")
    partitions: list[int32] = field("0+")


@message("0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[ShareGroupTargetAssignmentMemberValueTopicPartition] = field("0+")


@message("0")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = field("0")
    member_id: str = field("0")


@struct
class ShareGroupCurrentMemberAssignmentValueTopicPartitions:
    topic_id: UUID = field("0+")
    partitions: list[int32] = field("0+")


@message("0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int32 = field("0+")
    previous_member_epoch: int32 = field("0+")
    state: int8 = field("0+")
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValueTopicPartitions] = field("0+")


@message("0")
class ShareGroupStatePartitionMetadataKey:
    group_id: str = field("0")


@struct
class ShareGroupStatePartitionMetadataValueTopicPartitionsInfo:
    topic_id: UUID = field("0+")
    topic_name: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class ShareGroupStatePartitionMetadataValueTopicInfo:
    topic_id: UUID = field("0+")
    topic_name: str = field("0+")


@message("0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[ShareGroupStatePartitionMetadataValueTopicPartitionsInfo] = field("0+")
    initialized_topics: list[ShareGroupStatePartitionMetadataValueTopicPartitionsInfo] = field("0+")
    deleting_topics: list[ShareGroupStatePartitionMetadataValueTopicInfo] = field("0+")


@message("0")
class ConsumerGroupRegularExpressionKey:
    group_id: str = field("0")
    regular_expression: str = field("0")


@message("0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = field("0+")
    version: int64 = field("0+")
    timestamp: int64 = field("0+")


@message("0")
class StreamsGroupMetadataKey:
    group_id: str = field("0")


@struct
class StreamsGroupMetadataValueLastAssignmentConfig:
    key: str = field("0+")
    value: str = field("0+")


@message("0", flexible="0+")
class StreamsGroupMetadataValue:
    epoch: int32 = field("0+")
    metadata_hash: int64 = field("0+")
    validated_topology_epoch: int32 = field("0+", default=-1, tag=0)
    last_assignment_configs: list[StreamsGroupMetadataValueLastAssignmentConfig] | None = field(
        "0+", nullable="0+", tag=1
    )


@message("0")
class StreamsGroupMemberMetadataKey:
    group_id: str = field("0")
    member_id: str = field("0")


@struct
class StreamsGroupMemberMetadataValueEndpoint:
    host: str = field("0+")
    port: uint16 = field("0+")


@struct
class StreamsGroupMemberMetadataValueKeyValue:
    key: str = field("0+")
    value: str = field("0+")


@message("0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: str | None = field("0+", nullable="0+")
    rack_id: str | None = field("0+", nullable="0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    rebalance_timeout_ms: int32 = field("0+", default=-1)
    topology_epoch: int32 = field("0+")
    process_id: str = field("0+")
    user_endpoint: StreamsGroupMemberMetadataValueEndpoint | None = field("0+", nullable="0+", default=None)
    client_tags: list[StreamsGroupMemberMetadataValueKeyValue] = field("0+")


@message("0")
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: str = field("0")


@message("0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32 = field("0+")
    assignment_timestamp: int64 = field("0+", tag=0, ignorable=True)


@message("0")
class StreamsGroupTargetAssignmentMemberKey:
    group_id: str = field("0")
    member_id: str = field("0")


@struct
class StreamsGroupTargetAssignmentMemberValueTaskIds:
    subtopology_id: str = field("0+")
    partitions: list[int32] = field("0+")


@message("0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = field("0+")
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = field("0+")
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = field("0+")


@message("0")
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: str = field("0")
    member_id: str = field("0")


@struct
class StreamsGroupCurrentMemberAssignmentValueTaskIds:
    subtopology_id: str = field("0+")
    partitions: list[int32] = field("0+")
    assignment_epochs: list[int32] | None = field("0+", nullable="0+", tag=0)


@message("0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: int32 = field("0+")
    previous_member_epoch: int32 = field("0+")
    state: int8 = field("0+")
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field("0+")
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field("0+")
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field("0+")
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field("0+")
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field("0+")
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field("0+")


@message("0")
class StreamsGroupTopologyKey:
    group_id: str = field("0")


@struct
class StreamsGroupTopologyValueTopicConfig:
    key: str = field("0+")
    value: str = field("0+")


@struct
class StreamsGroupTopologyValueTopicInfo:
    name: str = field("0+")
    partitions: int32 = field("0+")
    replication_factor: int16 = field("0+")
    topic_configs: list[StreamsGroupTopologyValueTopicConfig] = field("0+")


@struct
class StreamsGroupTopologyValueCopartitionGroup:
    source_topics: list[int16] = field("0+")
    source_topic_regex: list[int16] = field("0+")
    repartition_source_topics: list[int16] = field("0+")


@struct
class StreamsGroupTopologyValueSubtopology:
    subtopology_id: str = field("0+")
    source_topics: list[str] = field("0+")
    source_topic_regex: list[str] = field("0+")
    state_changelog_topics: list[StreamsGroupTopologyValueTopicInfo] = field("0+")
    repartition_sink_topics: list[str] = field("0+")
    repartition_source_topics: list[StreamsGroupTopologyValueTopicInfo] = field("0+")
    copartition_groups: list[StreamsGroupTopologyValueCopartitionGroup] = field("0+")


@message("0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: int32 = field("0+")
    subtopologies: list[StreamsGroupTopologyValueSubtopology] = field("0+")


OFFSETS_TOPIC_RECORDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
