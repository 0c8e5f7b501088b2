"""Reassignments: start, replace, cancel, and emptying a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.controller.placement import Candidate, place_instead, place_replicas
from penstock.controller.plan import ClusterState
from penstock.controller.reassignments import (
    Ongoing,
    Reassignments,
    alter_reassignments,
    decommission,
    finish_possible,
    ongoing,
)
from penstock.controller.transitions import TopicRules
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState, Topic
from penstock.zookeeper.znodes import BrokerNode, Changes

PLAIN = TopicRules()
HELD = PartitionState((1, 2), (1, 2), 1, 5, 9)
MOVING = PartitionState((3, 4, 1, 2), (1, 2, 3), 1, 5, 9, adding=(3, 4), removing=(1, 2))


def state_of(*partitions: PartitionState) -> ClusterState:
    brokers = {broker_id: BrokerNode(endpoints=()) for broker_id in range(1, 7)}
    return ClusterState(0, Changes(), 0, brokers, {"t": Topic("t", UUID(int=1), partitions, (0,))})


def reassign(
    before: PartitionState,
    target: Sequence[int] | None,
    rules: TopicRules = PLAIN,
    *,
    is_factor_change_allowed: bool = True,
) -> PartitionState | Error:
    outcome = alter_reassignments(
        state_of(before), lambda _name: rules, {"t": {0: target}}, is_factor_change_allowed=is_factor_change_allowed
    )
    error = outcome.results["t", 0]
    if error is not None:
        assert outcome.plans == []
        return error.error
    if not outcome.plans:
        return before
    assert outcome.plans[0].topic is not None
    return outcome.plans[0].topic.partitions[0]


@pytest.mark.parametrize(
    ("before", "target", "expected"),
    [
        # start
        (HELD, (3, 4), PartitionState((3, 4, 1, 2), (1, 2), 1, 5, 10, adding=(3, 4), removing=(1, 2))),
        (HELD, (2, 3), PartitionState((2, 3, 1), (2, 1), 1, 5, 10, adding=(3,), removing=(1,))),
        (HELD, (1, 2, 3), PartitionState((1, 2, 3), (1, 2), 1, 5, 10, adding=(3,))),
        # nothing to copy: done at once
        (HELD, (2, 1), PartitionState((2, 1), (2, 1), 1, 5, 10)),
        (HELD, (2,), PartitionState((2,), (2,), 2, 6, 10)),
        (HELD, (1, 2), HELD),
        # replace: what the old one was adding goes
        (MOVING, (1, 5), PartitionState((1, 5, 2), (1, 2), 1, 5, 10, adding=(5,), removing=(2,))),
        (MOVING, (3, 2), PartitionState((3, 2), (3, 2), 3, 6, 10)),
        # cancel
        (MOVING, None, PartitionState((1, 2), (1, 2), 1, 5, 10)),
        (MOVING, (1, 2), PartitionState((1, 2), (1, 2), 1, 5, 10)),
        # … without those who came in between
        (
            PartitionState((3, 1), (3, 1), 3, 5, 9, adding=(3,), removing=(1,)),
            None,
            PartitionState((1,), (1,), 1, 6, 10),
        ),
        # only one who is being added is in sync: it stays until others are
        (
            PartitionState((3, 4, 1, 2), (3,), 3, 5, 9, adding=(3, 4), removing=(1, 2)),
            (5, 6),
            PartitionState((5, 6, 1, 2, 3), (3,), 3, 5, 10, adding=(5, 6), removing=(1, 2, 3)),
        ),
        # what is wrong
        (HELD, None, Error.NO_REASSIGNMENT_IN_PROGRESS),
        (HELD, (), Error.INVALID_REPLICA_ASSIGNMENT),
        (HELD, (3, 3), Error.INVALID_REPLICA_ASSIGNMENT),
        (HELD, (1, 9), Error.INVALID_REPLICA_ASSIGNMENT),
        (
            PartitionState((3, 1), (3,), 3, 5, 9, adding=(3,), removing=(1,)),
            None,
            Error.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_reassignments(before: PartitionState, target: Sequence[int] | None, expected: PartitionState | Error) -> None:
    assert reassign(before, target) == expected


def test_a_replica_that_is_away_may_stay() -> None:
    gone = PartitionState((1, 9), (1,), 1, 5, 9)
    assert isinstance(reassign(gone, (2, 9)), PartitionState)


def test_the_number_of_replicas_may_be_fixed() -> None:
    for target in ((3,), (3, 4, 5)):
        assert reassign(HELD, target, is_factor_change_allowed=False) is Error.INVALID_REPLICATION_FACTOR
        assert reassign(MOVING, target, is_factor_change_allowed=False) is Error.INVALID_REPLICATION_FACTOR
    assert isinstance(reassign(MOVING, (4, 5), is_factor_change_allowed=False), PartitionState)


def test_cancelling_to_replicas_out_of_sync() -> None:
    moving = PartitionState((3, 1), (3,), 3, 5, 9, adding=(3,), removing=(1,))
    after = reassign(moving, None, TopicRules(is_unclean_allowed=True))
    assert after == PartitionState((1,), (1,), 1, 6, 10)
    eligible = PartitionState((3, 1, 2), (3,), 3, 5, 9, eligible=(2,), adding=(3,), removing=(1, 2))
    after = reassign(eligible, None, TopicRules(min_isr=2))
    assert after == PartitionState((1, 2), (2,), 2, 6, 10)


def test_what_is_unknown_does_not_stop_the_rest() -> None:
    asked: Reassignments = {"t": {0: (3, 4), 7: (1,)}, "gone": {0: None}}
    outcome = alter_reassignments(state_of(HELD), lambda _name: TopicRules(), asked)
    errors = {place: error and error.error for place, error in outcome.results.items()}
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {("t", 0): None, ("t", 7): unknown, ("gone", 0): unknown}
    assert len(outcome.plans) == 1


def test_what_is_under_way() -> None:
    state = state_of(HELD, MOVING)
    assert ongoing(state.topics) == [Ongoing("t", 1, MOVING)]
    assert ongoing(state.topics, {"t": [1], "gone": [0]}) == [Ongoing("t", 1, MOVING)]
    assert ongoing(state.topics, {"t": [0]}) == []


def test_what_only_nobody_could_lead_is_completed_when_somebody_can() -> None:
    waiting = PartitionState((3, 4, 1), (3, 4, 1), 1, 5, 9, adding=(3, 4), removing=(1,))
    state = state_of(HELD, waiting, MOVING)
    (plan,) = finish_possible(state, lambda _name: TopicRules())
    assert plan.topic is not None
    assert plan.topic.partitions == (HELD, PartitionState((3, 4), (3, 4), 3, 6, 10), MOVING)
    leaderless = msgspec.structs.replace(waiting, leader=-1)
    assert finish_possible(state_of(leaderless), lambda _name: TopicRules()) == [], "that is for the next election"


# ── emptying a broker ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_is_emptied() -> None:
    state = state_of(HELD, MOVING, PartitionState((4, 3), (4,), NO_LEADER))
    moves = decommission(state, 3)
    assert list(moves) == ["t"]
    assert list(moves["t"]) == [1, 2]
    outcome = alter_reassignments(state, lambda _name: TopicRules(), moves)
    assert set(outcome.results.values()) == {None}
    assert decommission(state_of(HELD), 6) == {}


def test_a_broker_that_nobody_can_stand_in_for() -> None:
    state = replace(state_of(HELD), brokers={1: BrokerNode(endpoints=()), 2: BrokerNode(endpoints=())})
    with pytest.raises(ApiError, match="every other broker") as raised:
        decommission(state, 1)
    assert raised.value.error is Error.INVALID_REPLICATION_FACTOR


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(4, 9), st.integers(1, 40), st.integers(1, 3))
def test_the_places_of_a_broker_are_spread(data: st.DataObject, count: int, partitions: int, factor: int) -> None:
    racks = data.draw(st.lists(st.sampled_from("abc"), min_size=count, max_size=count))
    brokers = [Candidate(number, racks[number], f"h{number}") for number in range(count)]
    before = place_replicas(brokers, partitions, factor)
    after = place_instead(brokers[1:], before, 0)
    for old, new in zip(before, after, strict=True):
        assert new is not None
        assert len(set(new)) == factor
        assert [each for each in new if each in old] == [each for each in old if each != 0]
        kept = {racks[each] for each in old if each != 0}
        if kept and kept != set(racks[1:]):
            taken = [each for each in new if each not in old]
            assert all(racks[each] not in kept for each in taken)


def test_load_is_even_after_a_broker_was_emptied() -> None:
    brokers = [Candidate(number) for number in range(5)]
    after = place_instead(brokers[1:], place_replicas(brokers, 100, 3), 0)
    held = Counter(each for replicas in after for each in replicas or ())
    led = Counter(replicas[0] for replicas in after if replicas)
    assert max(held.values()) - min(held.values()) <= 2
    assert max(led.values()) - min(led.values()) <= 2
