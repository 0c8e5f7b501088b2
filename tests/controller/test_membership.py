"""Forgetting brokers."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.base.errors import ApiError, Error
from penstock.controller.membership import PendingDeletion, replica_counts, unregister
from penstock.controller.plan import ClusterState
from penstock.zookeeper.operations import Delete, SetData
from penstock.zookeeper.topic_znodes import PartitionState, Topic
from penstock.zookeeper.znodes import AdmittedBrokers, BrokerNode, Changes, TopicDeletion

TOPICS = {"t": Topic("t", UUID(int=1), (PartitionState((1, 2), (1,), 1), PartitionState((1,), (1,), 1)), (0,))}
ADMITTED = AdmittedBrokers(epochs={1: 101}, away=(2, 3))
STATE = ClusterState(0, Changes(), 0, {1: BrokerNode(endpoints=())}, TOPICS, {1: 101}, ADMITTED, 8)


def deletion(number: int, *brokers: int) -> PendingDeletion:
    return PendingDeletion(TopicDeletion(name="d", topic_id=UUID(int=number), partition_count=1, brokers=brokers), 5)


def test_a_forgotten_broker_is_waited_for_no_more() -> None:
    deletions = [deletion(1, 1, 3), deletion(2, 3), deletion(3, 1)]
    operations = [operation for plan in unregister(STATE, 3, deletions, 2) for operation in plan.operations]
    first, second, settings, admitted = operations
    assert isinstance(first, SetData)
    assert TopicDeletion.decode(first.data).brokers == (1,)
    assert second == Delete(TopicDeletion.path(UUID(int=2)), 5)
    assert settings == Delete("/config/brokers/3", 2)
    assert isinstance(admitted, SetData)
    assert (admitted.version, AdmittedBrokers.decode(admitted.data).away) == (8, (2,))


@pytest.mark.parametrize(
    ("broker_id", "error", "words"),
    [
        (1, Error.INVALID_REQUEST, "is running"),
        (2, Error.INVALID_REQUEST, "1 replicas"),
        (9, Error.BROKER_ID_NOT_REGISTERED, "no broker 9"),
    ],
)
def test_who_cannot_be_forgotten(broker_id: int, error: Error, words: str) -> None:
    with pytest.raises(ApiError, match=words) as raised:
        unregister(STATE, broker_id, [deletion(1, 1)], None)
    assert raised.value.error is error


def test_a_broker_known_only_by_a_deletion_can_be_forgotten() -> None:
    (plan,) = unregister(STATE, 9, [deletion(1, 9)], None)
    assert isinstance(plan.operations[0], Delete)
    assert replica_counts(STATE) == {1: 2, 2: 1}
