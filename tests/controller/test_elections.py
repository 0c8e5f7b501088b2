"""Leaders after brokers came and went: each rule as a small story."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import msgspec
import pytest

from penstock.base.errors import ApiError, Error
from penstock.controller.elections import (
    controlled_shutdown,
    lead_again,
    led_by,
    members_changed,
    min_isr_changed,
    replicas_failed,
)
from penstock.controller.plan import ClusterState, Plan, fenced_writes
from penstock.controller.transitions import TopicRules, topic_plans
from penstock.zookeeper.coordination import MULTI_SIZE_BYTES_MAX
from penstock.zookeeper.operations import Create, SetData, size_bytes
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState, Topic
from penstock.zookeeper.znodes import AdmittedBrokers, BrokerNode, Changes

TWO = TopicRules(min_isr=2)
ONE = TopicRules(min_isr=1)
RISKY = TopicRules(min_isr=2, is_unclean_allowed=True)


def partition(
    replicas: tuple[int, ...],
    isr: tuple[int, ...] | None = None,
    leader: int | None = None,
    eligible: tuple[int, ...] = (),
) -> PartitionState:
    in_sync = replicas if isr is None else isr
    first = in_sync[0] if leader is None else leader
    return PartitionState(replicas, in_sync, first, leader_epoch=5, partition_epoch=9, eligible=eligible)


def state_of(
    *partitions: PartitionState,
    here: Mapping[int, int] | None = None,
    admitted: Mapping[int, int] | None = None,
    unclean: tuple[int, ...] = (),
    leaving: tuple[int, ...] = (),
) -> ClusterState:
    """One topic "t". Brokers by id with their epochs: who is here, and who was admitted."""
    here = {1: 101, 2: 102, 3: 103} if here is None else here
    brokers = {broker_id: BrokerNode(endpoints=(), clean_start=broker_id not in unclean) for broker_id in here}
    before = AdmittedBrokers(epochs=dict(here if admitted is None else admitted), leaving=leaving)
    topics = {"t": Topic("t", UUID(int=1), partitions, (0,) * (1 + (len(partitions) - 1) // 500))}
    return ClusterState(0, Changes(), 0, brokers, topics, dict(here), before, 4)


ALL = {1: 101, 2: 102, 3: 103}


def after(plans: list[Plan]) -> PartitionState:
    (state,) = next(plan.topic for plan in plans if plan.topic is not None).partitions
    return state


def story(state: PartitionState) -> tuple[int, tuple[int, ...], tuple[int, ...], int, int]:
    return state.leader, state.isr, state.eligible, state.leader_epoch, state.partition_epoch


def is_unclean(plans: list[Plan]) -> bool:
    return any(plan.unclean for plan in plans)


@pytest.mark.parametrize(
    ("before", "gone", "rules", "expected"),
    [
        # a follower goes: the leader stays in its epoch
        (partition((1, 2, 3)), {3}, TWO, (1, (1, 2), (), 5, 10)),
        # the leader goes: the next of the assignment leads
        (partition((1, 2, 3)), {1}, TWO, (2, (2, 3), (), 6, 10)),
        (partition((1, 3, 2)), {1}, TWO, (3, (3, 2), (), 6, 10)),
        # only those in sync
        (partition((1, 2, 3), (1, 3)), {1}, ONE, (3, (3,), (), 6, 10)),
        # below min.insync.replicas who left stays eligible
        (partition((1, 2, 3), (1, 3)), {1}, TWO, (3, (3,), (1,), 6, 10)),
        (partition((1, 2, 3)), {1, 2}, TWO, (3, (3,), (1, 2), 6, 10)),
        (partition((1, 2, 3)), {1, 2}, ONE, (3, (3,), (), 6, 10)),
        # the last of the ISR: no leader, but the ISR keeps it
        (partition((1, 2, 3), (1,)), {1}, ONE, (NO_LEADER, (1,), (), 6, 10)),
        (partition((1, 2, 3)), {1, 2, 3}, TWO, (NO_LEADER, (1, 2, 3), (), 6, 10)),
        # … unless one is eligible
        (partition((1, 2, 3), (1,), eligible=(2,)), {1}, TWO, (2, (2,), (1,), 6, 10)),
        (partition((1, 2, 3), (1,), eligible=(2, 3)), {1, 2}, TWO, (3, (3,), (1, 2), 6, 10)),
        (partition((1, 2, 3), (1,), eligible=(2,)), {1, 2}, TWO, (NO_LEADER, (1,), (2,), 6, 10)),
        # … or the topic may be led by anybody
        (partition((1, 2, 3), (1,)), {1}, RISKY, (2, (2,), (), 6, 10)),
        # min.insync.replicas is never more than there are replicas
        (partition((1, 2), (1, 2)), {2}, TopicRules(min_isr=5), (1, (1,), (2,), 5, 10)),
        (partition((1,)), {1}, TopicRules(min_isr=5), (NO_LEADER, (1,), (), 6, 10)),
    ],
)
def test_brokers_go(
    before: PartitionState, gone: set[int], rules: TopicRules, expected: tuple[int, tuple[int, ...], object, int, int]
) -> None:
    here = {broker_id: epoch for broker_id, epoch in ALL.items() if broker_id not in gone}
    plans = members_changed(state_of(before, here=here, admitted=ALL), lambda _name: rules)
    assert story(after(plans)) == expected
    assert is_unclean(plans) == (rules is RISKY)


@pytest.mark.parametrize(
    ("before", "back", "unclean", "rules", "expected", "is_marked"),
    [
        # a restart that nobody saw: it leaves the ISR, and leads no more
        (partition((1, 2, 3)), {1}, {}, TWO, (2, (2, 3), (), 6, 10), False),
        (partition((1, 2, 3)), {3}, {}, TWO, (1, (1, 2), (), 5, 10), False),
        (partition((1, 2), (1, 2)), {2}, {}, TWO, (1, (1,), (2,), 5, 10), False),
        # … it had no other in sync: it leads again, in a new epoch
        (partition((1,)), {1}, {}, ONE, (1, (1,), (), 6, 10), False),
        (partition((1, 2), (1,)), {1}, {}, ONE, (1, (1,), (), 6, 10), False),
        # everybody was away: all came back, and all are in sync
        (partition((1, 2, 3)), {1, 2, 3}, {}, TWO, (1, (1, 2, 3), (), 6, 10), False),
        # a partition that had waited for it
        (partition((1, 2), (2,), NO_LEADER), {2}, {}, TWO, (2, (2,), (), 6, 10), False),
        (partition((1, 2, 3), (1,), NO_LEADER, (3,)), {3}, {}, TWO, (1, (1,), (3,), 6, 10), False),
        # without its unsynced records: neither in sync nor eligible
        (partition((1, 2), (1, 2)), {2}, {2}, TWO, (1, (1,), (), 5, 10), False),
        (partition((1, 2, 3), (1,), eligible=(2, 3)), {2}, {2}, TWO, (1, (1,), (3,), 5, 10), False),
        (partition((1, 2, 3), (1,), eligible=(2,)), {1}, {1}, TWO, (2, (2,), (), 6, 10), False),
        # … and nobody else has all: the last known leader leads, on record
        (partition((1,)), {1}, {1}, ONE, (1, (1,), (), 6, 10), True),
        (partition((1, 2, 3), (2,), 2), {2}, {2}, TWO, (2, (2,), (), 6, 10), True),
        (partition((1, 2, 3), leader=2), {1, 2, 3}, {1, 2, 3}, TWO, (2, (2,), (), 6, 10), True),
        # … one of them came back whole
        (partition((1, 2, 3)), {1, 2, 3}, {1, 2}, TWO, (3, (3,), (), 6, 10), False),
    ],
)
def test_brokers_come_back(
    before: PartitionState,
    back: set[int],
    unclean: set[int],
    rules: TopicRules,
    expected: tuple[int, tuple[int, ...], object, int, int],
    is_marked: bool,
) -> None:
    admitted = {broker_id: epoch - 50 * (broker_id in back) for broker_id, epoch in ALL.items()}
    plans = members_changed(state_of(before, admitted=admitted, unclean=tuple(unclean)), lambda _name: rules)
    assert story(after(plans)) == expected
    assert is_unclean(plans) == is_marked


def test_one_that_lost_records_waits_for_one_that_did_not() -> None:
    waiting = partition((1, 2, 3), (1, 2), NO_LEADER)
    state = state_of(waiting, here={1: 201, 3: 103}, admitted={3: 103}, unclean=(1,))
    assert story(after(members_changed(state, lambda _name: TWO))) == (NO_LEADER, (2,), (), 5, 10)
    state = state_of(partition((1, 2, 3), (1,), eligible=(2,)), here={1: 201, 3: 103}, admitted=ALL, unclean=(1,))
    assert story(after(members_changed(state, lambda _name: TWO))) == (NO_LEADER, (2,), (), 6, 10)


def test_the_admission_is_the_last_write() -> None:
    state = state_of(partition((1, 2, 3)), here={2: 102, 3: 203, 4: 104}, admitted=ALL, leaving=(2, 3))
    plans = members_changed(state, lambda _name: TWO)
    (operation,) = plans[-1].operations
    assert isinstance(operation, SetData)
    assert operation.version == 4
    written = AdmittedBrokers.decode(operation.data)
    assert written == AdmittedBrokers(epochs={2: 102, 3: 203, 4: 104}, leaving=(2,), away=(1,))
    (operation,) = members_changed(replace(state, admitted_version=None), lambda _name: TWO)[-1].operations
    assert isinstance(operation, Create)


def test_nothing_is_written_when_nothing_has_happened() -> None:
    assert members_changed(state_of(partition((1, 2, 3)), partition((2, 1), (2,))), lambda _name: ONE) == []


def test_a_state_without_epochs_takes_all_for_admitted() -> None:
    state = ClusterState(0, Changes(), 0, {1: BrokerNode(endpoints=())})
    assert state.is_admitted(1)
    assert list(state.living()) == [1]


# ── controlled shutdown ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_that_is_about_to_stop_hands_over() -> None:
    state = state_of(
        partition((1, 2, 3)),  # led by it
        partition((2, 1), (2, 1)),  # followed by it
        partition((1, 2), (1,)),  # nobody else is in sync
        partition((1, 2), (1,), eligible=(2,)),  # the eligible one would cut off what it has
        partition((2, 3)),  # none of its own
    )
    plans = controlled_shutdown(state, lambda _name: TWO, 1)
    (operation,) = plans[0].operations
    assert isinstance(operation, SetData)
    assert AdmittedBrokers.decode(operation.data).leaving == (1,)
    topic = plans[1].topic
    assert topic is not None
    assert [story(each) for each in topic.partitions] == [
        (2, (2, 3), (), 6, 10),
        (2, (2,), (1,), 5, 10),
        (1, (1,), (), 5, 9),
        (1, (1,), (2,), 5, 9),
        (2, (2, 3), (), 5, 9),
    ]
    assert led_by(replace(state, topics={"t": topic}), 1) == 2
    again = replace(state, topics={"t": topic}, admitted=AdmittedBrokers(epochs=ALL, leaving=(1,)))
    assert controlled_shutdown(again, lambda _name: TWO, 1) == []
    assert members_changed(again, lambda _name: TWO) == []  # it leads on while it is here
    assert list(again.living()) == [2, 3]


def test_only_a_broker_that_is_here_can_be_about_to_stop() -> None:
    with pytest.raises(ApiError) as raised:
        controlled_shutdown(state_of(partition((1,)), admitted={1: 7}), lambda _name: ONE, 1)
    assert raised.value.error is Error.STALE_BROKER_EPOCH


def test_nobody_who_is_about_to_stop_is_elected() -> None:
    state = state_of(partition((1, 2, 3)), here={2: 102, 3: 103}, admitted=ALL, leaving=(2,))
    assert after(members_changed(state, lambda _name: ONE)).leader == 3


# ── log directories, settings ────────────────────────────────────────────────────────────────────────────────────


def test_replicas_in_a_failed_directory() -> None:
    state = state_of(partition((1, 2)), partition((1,)), partition((1, 2)), partition((2, 1), (2,)))
    (plan,) = replicas_failed(state, lambda _name: TWO, 1, {"t": [0, 1, 3, 77], "gone": [0]})
    assert plan.topic is not None
    assert [story(each) for each in plan.topic.partitions] == [
        (2, (2,), (1,), 6, 10),
        (NO_LEADER, (1,), (), 6, 10),
        (1, (1, 2), (), 5, 9),
        (2, (2,), (), 5, 9),
    ]


def test_a_lower_min_isr_empties_the_eligible_lists() -> None:
    with_leader = partition((1, 2, 3), (1,), eligible=(2,))
    without = partition((1, 2, 3), (1,), NO_LEADER, eligible=(2,))
    (plan,) = min_isr_changed(state_of(with_leader, without), lambda _name: ONE, ["t", "gone"])
    assert plan.topic is not None
    assert [each.eligible for each in plan.topic.partitions] == [(), (2,)]  # without a leader nothing is committed
    assert min_isr_changed(state_of(with_leader, without), lambda _name: TWO, ["t"]) == []


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_leads_again_what_it_led_in_a_new_epoch() -> None:
    mine, other = partition((1, 2)), partition((2, 1))
    (plan,) = lead_again(state_of(mine, other), 1)
    assert plan.topic is not None
    again, untouched = plan.topic.partitions
    assert (again.leader, again.leader_epoch, again.partition_epoch) == (1, 6, 10)
    assert untouched == other
    assert plan.notice.topics == ("t",)
    assert plan.topic.versions == (1,)
    assert lead_again(state_of(other), 1) == []


def test_a_plan_that_is_too_large_is_cut_at_the_znodes() -> None:
    wide = msgspec.structs.replace(partition(tuple(range(1_000_000, 1_000_020))), leader=1_000_000)
    topic = Topic("t", UUID(int=1), (wide,) * 2_100, (7,) * 5)
    changed = [msgspec.structs.replace(each, partition_epoch=10) for each in topic.partitions]
    plans = topic_plans(topic, [*topic.partitions[:500], *changed[500:]], unclean=[501, 2_000])
    assert [plan.unclean for plan in plans] == [(501,), (), (), (2_000,)]
    assert plans[0].topic is not None
    assert plans[0].topic.versions == (7, 8, 7, 7, 7)
    assert plans[0].topic.partitions[999:1001] == (changed[0], wide)
    assert plans[-1].topic is not None
    assert plans[-1].topic.versions == (7, 8, 8, 8, 8)


def test_ten_thousand_partitions_of_a_dead_broker(capsys: pytest.CaptureFixture[str]) -> None:
    turns = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
    large = Topic("large", UUID(int=1), tuple(partition(turns[n % 3]) for n in range(5_000)), (0,) * 10)
    small = [Topic(f"t{n}", UUID(int=n + 2), (partition(turns[n % 3]),), (0,)) for n in range(5_000)]
    state = state_of(here={2: 102, 3: 103}, admitted=ALL)
    state = replace(state, topics={topic.name: topic for topic in (large, *small)})
    started = time.perf_counter()
    plans = members_changed(state, lambda _name: TWO)
    decided = time.perf_counter()
    writes = fenced_writes(state, plans)
    packed = time.perf_counter()
    with capsys.disabled():
        print(f"\n10,000 partitions decided in {(decided - started) * 1000:.0f} ms, packed into {len(writes)}", end=" ")
        print(f"writes in {(packed - decided) * 1000:.0f} ms")
    assert all(size_bytes(write.operations) < MULTI_SIZE_BYTES_MAX for write in writes)
    topics = [plan.topic for plan in plans if plan.topic is not None]
    assert all(each.leader in (2, 3) for topic in topics for each in topic.partitions)
    assert len(topics) == 5_001
