"""AlterPartition: every refusal as a row, and what is granted."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import msgspec
import pytest

from penstock.base.errors import ApiError, Error
from penstock.controller.isr import AlterPartitionOutcome, IsrRequest, alter_partition
from penstock.controller.plan import ClusterState
from penstock.controller.transitions import TopicRules
from penstock.zookeeper.topic_znodes import PartitionState, Topic
from penstock.zookeeper.znodes import AdmittedBrokers, BrokerNode, Changes

TOPIC_ID = UUID(int=7)
EPOCHS = {1: 101, 2: 102, 3: 103, 4: 104, 5: 105}
LED = PartitionState((1, 2, 3, 4, 5), (1, 2), 1, leader_epoch=5, partition_epoch=9)


def state_of(partition: PartitionState = LED) -> ClusterState:
    """Broker 1 leads; 4 is about to stop, 5 has registered again since it was admitted."""
    brokers = {broker_id: BrokerNode(endpoints=()) for broker_id in EPOCHS}
    admitted = AdmittedBrokers(epochs={**EPOCHS, 5: 55}, leaving=(4,))
    topics = {"t": Topic("t", TOPIC_ID, (partition,), (3,))}
    return ClusterState(0, Changes(), 0, brokers, topics, EPOCHS, admitted, 0)


def ask(state: ClusterState, *requests: IsrRequest, broker_id: int = 1) -> AlterPartitionOutcome:
    rules = TopicRules(min_isr=2)
    return alter_partition(state, lambda _name: rules, broker_id, EPOCHS[broker_id], {TOPIC_ID: requests})


def isr(*members: int) -> dict[int, int]:
    return {member: EPOCHS[member] for member in members}


@pytest.mark.parametrize(
    ("request_", "broker_id", "error"),
    [
        (IsrRequest(1, 5, 9, isr(1)), 1, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (IsrRequest(-1, 5, 9, isr(1)), 1, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (IsrRequest(0, 4, 9, isr(1)), 1, Error.FENCED_LEADER_EPOCH),
        (IsrRequest(0, 6, 9, isr(1)), 1, Error.NOT_CONTROLLER),
        (IsrRequest(0, 5, 8, isr(1)), 1, Error.INVALID_UPDATE_VERSION),
        (IsrRequest(0, 5, 10, isr(1)), 1, Error.NOT_CONTROLLER),
        (IsrRequest(0, 5, 9, isr(1, 2)), 2, Error.INVALID_REQUEST),
        (IsrRequest(0, 5, 9, {}), 1, Error.INVALID_REQUEST),
        (IsrRequest(0, 5, 9, isr(2)), 1, Error.INVALID_REQUEST),
        (IsrRequest(0, 5, 9, {1: 101, 9: 1}), 1, Error.INVALID_REQUEST),
        (IsrRequest(0, 5, 9, {1: 101, 3: 99}), 1, Error.INELIGIBLE_REPLICA),
        (IsrRequest(0, 5, 9, {1: 101, 3: -1}), 1, Error.INELIGIBLE_REPLICA),
        (IsrRequest(0, 5, 9, {1: 101, 2: 99}), 1, Error.INELIGIBLE_REPLICA),
        (IsrRequest(0, 5, 9, isr(1, 4)), 1, Error.INELIGIBLE_REPLICA),
        (IsrRequest(0, 5, 9, isr(1, 5)), 1, Error.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused(request_: IsrRequest, broker_id: int, error: Error) -> None:
    outcome = ask(state_of(), request_, broker_id=broker_id)
    assert outcome.plans == []
    ((result,),) = outcome.results.values()
    assert result.error is error


def test_one_joins_and_one_leaves() -> None:
    outcome = ask(state_of(), IsrRequest(0, 5, 9, {1: 101, 3: 103}))
    (plan,) = outcome.plans
    ((result,),) = outcome.results.values()
    assert result.error is Error.NONE
    assert plan.topic is not None
    assert plan.topic.partitions == (result.state,)
    assert result.state == msgspec.structs.replace(LED, isr=(1, 3), partition_epoch=10)


def test_who_leaves_too_small_an_isr_stays_eligible_until_it_is_large_again() -> None:
    state = state_of()
    outcome = ask(state, IsrRequest(0, 5, 9, isr(1)), IsrRequest(0, 5, 10, isr(1, 3)), IsrRequest(0, 5, 9, isr(1)))
    ((small, large, late),) = outcome.results.values()
    assert small.state is not None
    assert large.state is not None
    assert (small.state.isr, small.state.eligible) == ((1,), (2,))
    assert (large.state.isr, large.state.eligible, large.state.partition_epoch) == ((1, 3), (), 11)
    assert late.error is Error.INVALID_UPDATE_VERSION
    assert len(outcome.plans) == 1


def test_who_is_in_sync_need_not_be_known_by_its_epoch() -> None:
    ((result,),) = ask(state_of(), IsrRequest(0, 5, 9, {1: 101, 2: -1, 3: 103})).results.values()
    assert result.error is Error.NONE


def test_asking_for_the_isr_that_there_is_fences_what_was_asked_before() -> None:
    outcome = ask(state_of(), IsrRequest(0, 5, 9, isr(1, 2)), IsrRequest(0, 5, 9, isr(1)))
    ((sure, late),) = outcome.results.values()
    assert sure == (0, Error.NONE, msgspec.structs.replace(LED, partition_epoch=10))
    assert late.error is Error.INVALID_UPDATE_VERSION
    (plan,) = outcome.plans
    assert plan.topic is not None and plan.topic.partitions == (sure.state,)


def test_the_last_one_to_come_completes_a_reassignment() -> None:
    moving = PartitionState((2, 3, 1), (1, 2), 1, 5, 9, adding=(2, 3), removing=(1,))
    ((result,),) = ask(state_of(moving), IsrRequest(0, 5, 9, isr(1, 2, 3))).results.values()
    assert result.error is Error.NEW_LEADER_ELECTED
    assert result.state == PartitionState((2, 3), (2, 3), 2, 6, 10)


def test_a_reassignment_waits_for_one_who_can_lead() -> None:
    moving = PartitionState((4, 1), (1,), 1, 5, 9, adding=(4,), removing=(1,))
    state = state_of(msgspec.structs.replace(moving, isr=(1, 4)))
    ((result,),) = ask(state, IsrRequest(0, 5, 9, isr(1, 4))).results.values()
    assert result.state is not None
    assert result.state.leader == 1


@pytest.mark.parametrize(("broker_id", "broker_epoch"), [(1, 100), (9, 1), (5, 105)])
def test_a_stale_broker_is_refused(broker_id: int, broker_epoch: int) -> None:
    with pytest.raises(ApiError) as raised:
        alter_partition(state_of(), lambda _name: TopicRules(), broker_id, broker_epoch, {})
    assert raised.value.error is Error.STALE_BROKER_EPOCH


def test_an_unknown_topic() -> None:
    state = replace(state_of(), topics={})
    ((result,),) = ask(state, IsrRequest(4, 5, 9, isr(1))).results.values()
    assert result == (4, Error.UNKNOWN_TOPIC_ID, None)
