"""Leaders that come back."""

from __future__ import annotations

from uuid import UUID

from penstock.controller.elections import lead_again
from penstock.controller.plan import ClusterState
from penstock.zookeeper.topic_znodes import PartitionState, Topic
from penstock.zookeeper.znodes import Changes


def state_of(*topics: Topic) -> ClusterState:
    return ClusterState(0, Changes(), 0, {}, {topic.name: topic for topic in topics})


def test_a_broker_leads_again_what_it_led_in_a_new_epoch() -> None:
    mine = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=9)
    other = PartitionState(replicas=(2, 1), isr=(1, 2), leader=2, leader_epoch=7, partition_epoch=3)
    (plan,) = lead_again(state_of(Topic("t", UUID(int=1), (mine, other), (5,))), 1)
    assert plan.topic is not None
    again, untouched = plan.topic.partitions
    assert (again.leader, again.leader_epoch, again.partition_epoch) == (1, 5, 10)
    assert untouched == other
    assert plan.notice.topics == ("t",)


def test_topics_that_it_does_not_lead_are_left_alone() -> None:
    other = PartitionState(replicas=(2,), isr=(2,), leader=2)
    assert lead_again(state_of(Topic("t", UUID(int=1), (other,), (0,))), 1) == []
