"""Which replica a consumer is sent to."""

from __future__ import annotations

import pytest

from penstock.broker.read_replicas import THE_LEADER, preferred_read_replica
from penstock.replication.leader import Leader, Membership
from penstock.zookeeper.znodes import BrokerNode

LEADER = 1


def brokers(**racks: str) -> dict[int, BrokerNode]:
    return {int(name[1:]): BrokerNode(endpoints=(), host="", rack=rack) for name, rack in racks.items()}


@pytest.fixture
def leader() -> Leader:
    membership = Membership((1, 2, 3, 4), frozenset({1, 2, 3}), 0)
    made = Leader(LEADER, 5, membership, end_offset=0, counted_end_offset=100, high_watermark=0, min_isr=1, now_ms=0)
    for follower, offset in ((2, 100), (3, 90), (4, 100)):
        made.follower_fetched(follower, 1, offset, 100, 10)
    return made


def test_the_leader_if_it_is_in_the_rack(leader: Leader) -> None:
    assert preferred_read_replica(leader, brokers(b1="a", b2="a"), "a", 50) == THE_LEADER


def test_the_leader_if_nobody_is_in_the_rack(leader: Leader) -> None:
    assert preferred_read_replica(leader, brokers(b1="a", b2="b", b3="b"), "c", 50) == THE_LEADER


def test_a_follower_in_the_rack(leader: Leader) -> None:
    assert preferred_read_replica(leader, brokers(b1="a", b2="b", b3="c"), "c", 50) == 3


def test_of_several_the_one_that_has_the_most(leader: Leader) -> None:
    assert preferred_read_replica(leader, brokers(b1="a", b2="b", b3="b"), "b", 50) == 2
    leader.follower_fetched(3, 1, 100, 100, 20)
    assert preferred_read_replica(leader, brokers(b1="a", b2="b", b3="b"), "b", 50) == 3, "caught up later"


def test_nobody_who_is_not_in_sync(leader: Leader) -> None:
    assert preferred_read_replica(leader, brokers(b1="a", b4="b"), "b", 50) == THE_LEADER


def test_nobody_who_does_not_have_it_yet_or_any_more(leader: Leader) -> None:
    racks = brokers(b1="a", b3="c")
    assert preferred_read_replica(leader, racks, "c", 91) == THE_LEADER
    assert preferred_read_replica(leader, racks, "c", 90) == 3
    leader.follower_starts_at(3, 60)
    assert preferred_read_replica(leader, racks, "c", 59) == THE_LEADER
    assert preferred_read_replica(leader, racks, "c", 60) == 3


def test_nobody_who_is_away(leader: Leader) -> None:
    assert preferred_read_replica(leader, brokers(b1="a", b2="b"), "c", 50) == THE_LEADER
