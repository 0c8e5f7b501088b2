"""ListPartitionReassignments (0): the partitions that are on their way to other replicas."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.controller.reassignments import ongoing
from penstock.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponsePartition,
    ListPartitionReassignmentsResponseTopic,
)


async def handle(
    broker: Broker, request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    asked: dict[str, list[int]] | None = None
    if request.topics is not None:
        asked = {}
        for topic in request.topics:
            asked.setdefault(topic.name, []).extend(topic.partition_indexes)
    topics: dict[str, ListPartitionReassignmentsResponseTopic] = {}
    for name, index, state in ongoing(broker.view.topics, asked):
        if name not in topics:
            topics[name] = ListPartitionReassignmentsResponseTopic(name=name)
        topics[name].partitions.append(
            ListPartitionReassignmentsResponsePartition(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))


def refused(_request: ListPartitionReassignmentsRequest, error: ApiError) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.error, error_message=error.message)
