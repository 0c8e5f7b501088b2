"""AlterPartition (key 56): a leader asks the controller to change in-sync replicas.

Between brokers only. 2: topics by id. 3: the epoch of every broker in the new set, so that a restarted one is noticed.
"""

from __future__ import annotations

from uuid import UUID

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int8, int16, int32, int64, message, struct


@struct
class AlterPartitionRequestBrokerState:
    broker_id: int32 = field("3+")
    broker_epoch: int64 = field("3+", default=-1)


@struct
class AlterPartitionRequestPartition:
    partition_index: int32 = field("0+")
    leader_epoch: int32 = field("0+")
    new_isr: list[int32] = field("0-2")
    new_isr_with_epochs: list[AlterPartitionRequestBrokerState] = field("3+")
    leader_recovery_state: int8 = field("1+")
    partition_epoch: int32 = field("0+")


@struct
class AlterPartitionRequestTopic:
    topic_id: UUID = field("2+", ignorable=True)
    partitions: list[AlterPartitionRequestPartition] = field("0+")


@message("2-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: int32 = field("0+")
    broker_epoch: int64 = field("0+", default=-1)
    topics: list[AlterPartitionRequestTopic] = field("0+")


@struct
class AlterPartitionResponsePartition:
    partition_index: int32 = field("0+")
    error_code: int16 = field("0+")
    leader_id: int32 = field("0+")
    leader_epoch: int32 = field("0+")
    isr: list[int32] = field("0+")
    leader_recovery_state: int8 = field("1+", ignorable=True)
    partition_epoch: int32 = field("0+")


@struct
class AlterPartitionResponseTopic:
    topic_id: UUID = field("2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartition] = field("0+")


@message("2-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    topics: list[AlterPartitionResponseTopic] = field("0+")


API = Api(56, "AlterPartition", AlterPartitionRequest, AlterPartitionResponse)
