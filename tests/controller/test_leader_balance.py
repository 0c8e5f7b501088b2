"""ElectLeaders and giving leadership back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from penstock.base.errors import Error
from penstock.controller.leader_balance import ElectionKind, balance, elect
from penstock.controller.plan import ClusterState
from penstock.controller.transitions import TopicRules
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState, Topic
from penstock.zookeeper.znodes import BrokerNode, Changes

PARTITIONS = (
    PartitionState((1, 2), (1, 2), 1, 5, 9),  # 0: as it should be
    PartitionState((1, 2), (1, 2), 2, 5, 9),  # 1: another leads
    PartitionState((3, 2), (2,), 2, 5, 9),  # 2: the preferred leader is not here
    PartitionState((1, 2), (2,), 2, 5, 9),  # 3: … not in sync
    PartitionState((3, 1), (3,), NO_LEADER, 5, 9),  # 4: nobody leads
    PartitionState((3,), (3,), NO_LEADER, 5, 9),  # 5: … nor can
)
TOPICS = {"t": Topic("t", UUID(int=1), PARTITIONS, (0,))}
STATE = ClusterState(0, Changes(), 0, {broker_id: BrokerNode(endpoints=()) for broker_id in (1, 2)}, TOPICS)


def rules(_name: str) -> TopicRules:
    return TopicRules()


@pytest.mark.parametrize(
    ("kind", "errors", "leaders"),
    [
        (
            ElectionKind.PREFERRED,
            {
                0: Error.ELECTION_NOT_NEEDED,
                1: None,
                2: Error.PREFERRED_LEADER_NOT_AVAILABLE,
                3: Error.PREFERRED_LEADER_NOT_AVAILABLE,
                4: Error.PREFERRED_LEADER_NOT_AVAILABLE,
                5: Error.PREFERRED_LEADER_NOT_AVAILABLE,
                6: Error.UNKNOWN_TOPIC_OR_PARTITION,
            },
            [1, 1, 2, 2, NO_LEADER, NO_LEADER],
        ),
        (
            ElectionKind.UNCLEAN,
            {
                0: Error.ELECTION_NOT_NEEDED,
                1: Error.ELECTION_NOT_NEEDED,
                2: Error.ELECTION_NOT_NEEDED,
                3: Error.ELECTION_NOT_NEEDED,
                4: None,
                5: Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                6: Error.UNKNOWN_TOPIC_OR_PARTITION,
            },
            [1, 2, 2, 2, 1, NO_LEADER],
        ),
    ],
)
def test_elections_on_request(kind: ElectionKind, errors: Mapping[int, Error | None], leaders: Sequence[int]) -> None:
    outcome = elect(STATE, rules, kind, {"t": list(errors), "gone": [3]})
    expected = {("t", index): error for index, error in errors.items()}
    expected["gone", 3] = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert {place: error and error.error for place, error in outcome.results.items()} == expected
    (plan,) = outcome.plans
    assert plan.topic is not None
    assert [each.leader for each in plan.topic.partitions] == leaders
    assert plan.unclean == ((4,) if kind is ElectionKind.UNCLEAN else ())


def test_of_all_partitions_those_that_need_nothing_are_not_told() -> None:
    outcome = elect(STATE, rules, ElectionKind.PREFERRED, None)
    assert [index for _, index in outcome.results] == [1, 2, 3, 4, 5]
    (plan,) = outcome.plans
    assert plan.topic is not None
    assert plan.topic.partitions[1] == PartitionState((1, 2), (1, 2), 1, 6, 10)


def test_leadership_is_given_back() -> None:
    (plan,) = balance(STATE, rules)
    assert plan.topic is not None
    assert [each.leader for each in plan.topic.partitions] == [1, 1, 2, 2, NO_LEADER, NO_LEADER]


def test_a_small_imbalance_is_left() -> None:
    # two of the three partitions that 1 should lead are led by others: 66 %
    assert balance(STATE, rules, imbalance_percentage_max=67) == []
    assert len(balance(STATE, rules, imbalance_percentage_max=66)) == 1


def test_only_so_many_leaders_move_at_once() -> None:
    wrong = PartitionState((1, 2), (1, 2), 2)
    state = ClusterState(0, Changes(), 0, STATE.brokers, {"t": Topic("t", UUID(int=1), (wrong,) * 10, (0,))})
    (plan,) = balance(state, rules, moves_max=3)
    assert plan.topic is not None
    assert [each.leader for each in plan.topic.partitions].count(1) == 3
