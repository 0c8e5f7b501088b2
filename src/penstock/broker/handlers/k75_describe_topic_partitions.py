"""DescribeTopicPartitions (0): topics and their partitions, in pages: the answer says where the next one begins.

A partition without a leader that this listener's clients can reach has none here, and that is no error.
"""

from __future__ import annotations

from collections.abc import Set

from penstock.base.errors import Error
from penstock.base.identifiers import NO_ID, topic_name_problem
from penstock.broker.authorized_operations import NOT_ASKED
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState, Topic


def handle(
    broker: Broker, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    reachable = {node.node_id for node in broker.nodes(context.connection.listener_name)}
    asked = {topic.name for topic in request.topics}
    names, hidden = broker.rights.sorted_out(
        context,
        Operation.DESCRIBE,
        ResourceType.TOPIC,
        sorted(asked or broker.view.topics),
        lambda name: name,
        is_told=bool(asked),
    )
    first_partition = 0
    if request.cursor is not None:
        if _is_bad(request.cursor, request.topics):
            return DescribeTopicPartitionsResponse(topics=[_refused(name, Error.INVALID_REQUEST) for name in names])
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first_partition = request.cursor.partition_index
    room = max(1, min(request.response_partition_limit, broker.settings.integer("max.request.partition.size.limit")))
    response = DescribeTopicPartitionsResponse()
    if asked:
        response.topics += [_refused(name, Error.TOPIC_AUTHORIZATION_FAILED) for name in hidden]
    for name in names:
        if room <= 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=0)
            break
        topic = broker.view.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name, broker.rights.operations(context, ResourceType.TOPIC, name)))
            continue
        operations = broker.rights.operations(context, ResourceType.TOPIC, name)
        first_partition = min(first_partition, len(topic.partitions))
        end = min(first_partition + room, len(topic.partitions))
        response.topics.append(_describe(topic, first_partition, end, reachable, operations))
        room -= end - first_partition
        if end < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=end)
            break
        first_partition = 0
    return response


def _is_bad(cursor: DescribeTopicPartitionsRequestCursor, asked: list[DescribeTopicPartitionsRequestTopic]) -> bool:
    """A topic that is gone since the last page is no reason to fail if all topics are asked for."""
    is_elsewhere = bool(asked) and cursor.topic_name not in {topic.name for topic in asked}
    return is_elsewhere or cursor.partition_index < 0


def _unknown(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    is_bad = topic_name_problem(name) is not None
    answer = _refused(name, Error.INVALID_TOPIC_EXCEPTION if is_bad else Error.UNKNOWN_TOPIC_OR_PARTITION)
    answer.topic_authorized_operations = operations
    return answer


def _refused(name: str, error: Error) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_id=NO_ID, topic_authorized_operations=NOT_ASKED
    )


def _describe(
    topic: Topic, first: int, end: int, reachable: Set[int], operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(index, topic.partitions[index], reachable) for index in range(first, end)],
        topic_authorized_operations=operations,
    )


def _partition(index: int, state: PartitionState, reachable: Set[int]) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=state.leader if state.leader in reachable else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.eligible),
        last_known_elr=[],
        offline_replicas=[replica for replica in state.replicas if replica not in reachable],
    )
