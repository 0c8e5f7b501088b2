"""AlterPartition between brokers: what leaders ask for as a request, and what the controller makes of it.

The answer tells the state of each partition from now on. A leader that gets one takes it for news of the controller,
not for the state itself, which it reads from the znodes like everybody else (see `isr_changes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.broker.controller_role import ControllerRole
from penstock.broker.decisions import carried_out
from penstock.controller.isr import (
    UNKNOWN_BROKER_EPOCH,
    AlterPartitionOutcome,
    IsrRequest,
    IsrResult,
    alter_partition,
)
from penstock.controller.plan import ClusterState
from penstock.replication.leader import IsrChange
from penstock.wire.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestBrokerState,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)


def request_of(
    broker_id: int, broker_epoch: int, changes: Iterable[tuple[UUID, int, IsrChange]]
) -> AlterPartitionRequest:
    """What a leader asks for: topic id, partition and change of each."""
    topics: dict[UUID, AlterPartitionRequestTopic] = {}
    for topic_id, index, change in changes:
        topic = topics.setdefault(topic_id, AlterPartitionRequestTopic(topic_id=topic_id))
        members = [
            AlterPartitionRequestBrokerState(broker_id=member, broker_epoch=epoch)
            for member, epoch in change.isr.items()
        ]
        topic.partitions.append(
            AlterPartitionRequestPartition(
                partition_index=index,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=members,
                partition_epoch=change.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


async def answer_to(role: ControllerRole, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Decide, if this broker is the controller."""
    asked: dict[UUID, list[IsrRequest]] = {}
    for topic in request.topics:
        asked.setdefault(topic.topic_id, []).extend(_isr_request(partition) for partition in topic.partitions)
    decisions = 0

    def decide(state: ClusterState) -> AlterPartitionOutcome:
        nonlocal decisions
        decisions += 1
        return alter_partition(state, role.rules_of, request.broker_id, request.broker_epoch, asked)

    try:
        outcome = await carried_out(role, decide)
    except ApiError as error:
        return AlterPartitionResponse(error_code=error.error)
    topics = [
        AlterPartitionResponseTopic(
            topic_id=topic_id, partitions=[_answer(result, is_first=decisions == 1) for result in results]
        )
        for topic_id, results in outcome.results.items()
    ]
    return AlterPartitionResponse(topics=topics)


def _isr_request(asked: AlterPartitionRequestPartition) -> IsrRequest:
    isr = {member.broker_id: member.broker_epoch for member in asked.new_isr_with_epochs}
    isr.update(dict.fromkeys(asked.new_isr, UNKNOWN_BROKER_EPOCH))
    return IsrRequest(asked.partition_index, asked.leader_epoch, asked.partition_epoch, isr)


def _answer(result: IsrResult, *, is_first: bool) -> AlterPartitionResponsePartition:
    """A refusal is one for good only if nothing was written before it, of which nobody knows what became of it."""
    error = result.error
    if error in (Error.INELIGIBLE_REPLICA, Error.INVALID_REQUEST) and not is_first:
        error = Error.NOT_CONTROLLER  # to be asked again
    answer = AlterPartitionResponsePartition(partition_index=result.partition, error_code=error)
    state = result.state
    if error is Error.NONE and state is not None:
        answer.leader_id, answer.leader_epoch = state.leader, state.leader_epoch
        answer.isr, answer.partition_epoch = list(state.isr), state.partition_epoch
    return answer
