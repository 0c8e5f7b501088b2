"""CreateTopics (key 19).

- 4: partitions and replicas may be left to the broker's defaults (-1). 5: the answer shows the settings in force.
- 6: may be throttled. 7: the answer carries the topic's id.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, message, struct


@struct
class CreateTopicsRequestReplicaAssignment:
    partition_index: int32 = field("0+")
    broker_ids: list[int32] = field("0+")


@struct
class CreateTopicsRequestConfig:
    name: str = field("0+")
    value: str | None = field("0+", nullable="0+")


@struct
class CreateTopicsRequestTopic:
    name: str = field("0+")
    num_partitions: int32 = field("0+")
    replication_factor: int16 = field("0+")
    assignments: list[CreateTopicsRequestReplicaAssignment] = field("0+")
    configs: list[CreateTopicsRequestConfig] = field("0+")


@message("2-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreateTopicsRequestTopic] = field("0+")
    timeout_ms: int32 = field("0+", default=60000)
    validate_only: bool = field("1+")


@struct
class CreateTopicsResponseConfig:
    name: str = field("5+")
    value: str | None = field("5+", nullable="5+")
    read_only: bool = field("5+")
    config_source: int8 = field("5+", default=-1, ignorable=True)
    is_sensitive: bool = field("5+")


@struct
class CreateTopicsResponseTopic:
    name: str = field("0+")
    topic_id: UUID = field("7+", ignorable=True)
    error_code: int16 = field("0+")
    error_message: str | None = field("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int16 = field("5+", tag=0, ignorable=True)
    num_partitions: int32 = field("5+", default=-1, ignorable=True)
    replication_factor: int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreateTopicsResponseConfig] | None = field("5+", nullable="5+", ignorable=True)


@message("2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int32 = field("2+", ignorable=True)
    topics: list[CreateTopicsResponseTopic] = field("0+")


API = Api(19, "CreateTopics", CreateTopicsRequest, CreateTopicsResponse)
