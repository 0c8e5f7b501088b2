"""AlterPartitionReassignments (0-1): give partitions other replicas, or (no replicas) take such an order back."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.decisions import carried_out
from penstock.broker.requests import RequestContext
from penstock.controller.reassignments import alter_reassignments
from penstock.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
)


async def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    role = broker.role
    may_change_factor = request.allow_replication_factor_change
    asked: dict[str, dict[int, list[int] | None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update({each.partition_index: each.replicas for each in topic.partitions})
    try:
        outcome = await carried_out(
            role,
            lambda state: alter_reassignments(state, role.rules_of, asked, is_factor_change_allowed=may_change_factor),
        )
    except ApiError as error:
        return refused(request, error)
    answer = AlterPartitionReassignmentsResponse(allow_replication_factor_change=may_change_factor)
    for name, targets in asked.items():
        for index, replicas in targets.items():
            if outcome.results[name, index] is None:
                broker.audit.record(
                    "reassignment_asked" if replicas is not None else "reassignment_cancelled",
                    partition=f"{name}-{index}",
                    replicas=replicas,
                    principal=context.principal,
                    host=context.host,
                )
        results = [_result(index, outcome.results[name, index]) for index in targets]
        answer.responses.append(AlterPartitionReassignmentsResponseTopic(name=name, partitions=results))
    return answer


def refused(request: AlterPartitionReassignmentsRequest, error: ApiError) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error.error,
        error_message=error.message,
        responses=[
            AlterPartitionReassignmentsResponseTopic(
                name=topic.name, partitions=[_result(part.partition_index, error) for part in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _result(index: int, error: ApiError | None) -> AlterPartitionReassignmentsResponsePartition:
    if error is None:
        return AlterPartitionReassignmentsResponsePartition(partition_index=index)
    return AlterPartitionReassignmentsResponsePartition(
        partition_index=index, error_code=error.error, error_message=error.message
    )
